"""Reports of the experiments as pages that need nothing but themselves. Their words come from `prefillwatch.report`."""
