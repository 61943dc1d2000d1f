"""What TorchServe meets: overlay and shim, pool host, service, the handler file in each .mar."""
