"""What verdicts, metrics, doctor, alerts, dashboards, the page and the documents have in common, each thing once.

causes       why streams freeze and first tokens are late: names, words, remedies, runbooks, colours
buckets      sizes, windows and bounds of histograms
limits       what users are promised, and from where on something counts as trouble
environment  variables that more than one process knows

Tables without code, which import nothing of the package; so everybody may read them, the plugin inside vLLM too.
"""
