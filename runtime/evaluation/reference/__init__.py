"""Models without a bundle: baselines and folders of saliency maps."""
