"""What the report's page and the server's page share.

base.css      colours, type, controls, and the viewer's frame, in light and dark
elements.js   makes elements
theme.js      light, dark, or as the system says
saliency.js   the sweep's arithmetic
drawing.js    a radiograph with its heat map, outlines and maximum on a canvas
assets        reads them, and makes the policy under which nothing else runs
"""
