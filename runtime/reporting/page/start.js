startTheme();
startContents();
startTables();
startColumns();
const gallery = document.getElementById("gallery-data");
if (gallery) new Gallery(document.getElementById("overlays"), JSON.parse(gallery.textContent));
