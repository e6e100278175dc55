"""Predicted boxes from files (docs/boxes.md): what a model answered for the pairs of a dataset.

read_box_file      a file -> the answers, by lines (bounded JSON), line_keys (one key at a time) and entry (one answer)
answered           the result: boxes, states and counters per pair, in the dataset's order
questions          what a dataset asks: its cases, findings and image sizes
coco_results       detections of COCO; grounded_phrases: reports as RadFact reads them
coordinate_frames  coordinates -> pixels of the original image
dialects/          texts of multimodal models -> boxes
fitting            boxes -> what is kept of them in their image
frame_check        does another frame fit the truth much better?
collecting         answers -> columns
"""
