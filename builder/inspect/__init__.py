"""Opens any file and says which GPUs its code runs on: report, difference, SARIF, atlas."""
