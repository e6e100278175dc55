"""Style, scripts and policy that the report's page and the server's page share.

base.css     colours, type, controls, and the viewer's frame, in light and dark
elements.js  makes elements
theme.js     light, dark, or the system's setting
saliency.js  the sweep's arithmetic
drawing.js   a radiograph with its heat map, outlines and maximum on a canvas
assets       reads them, and makes the policy that allows nothing else
"""
