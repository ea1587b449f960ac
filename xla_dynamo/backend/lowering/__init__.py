"""FX graph of aten ops -> one StableHLO module.

    FX graph --importer (torch-mlir)--> torch dialect --passes--> StableHLO with calls
    each called node --bodies (its JAX rule)--> a StableHLO function
    linker: both -> one flat StableHLO function, ready for PJRT

`lower` puts these together. Nothing here knows about devices that run programs: that is
`backend.runtime`. Importing this imports neither jax nor torch_mlir.
"""
