"""Further readers, who did not draw the regions: what they marked. Also datasets that leave one reader out."""
