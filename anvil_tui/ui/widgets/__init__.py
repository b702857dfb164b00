"""Strip-drawn widgets: they take rows of cells and know no domain words."""
