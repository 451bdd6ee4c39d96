"""Charts of the experiments' reports, drawn with matplotlib (extra ``charts``) as SVG that follows light and dark."""
