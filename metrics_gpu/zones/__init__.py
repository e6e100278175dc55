"""Places in words on a frame of the thorax: their rectangles, zones and sides, and the scores of what is said."""
