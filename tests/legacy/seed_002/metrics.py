print(torch_xla._XLAC._xla_metrics_report())
