"""gRPC servicers, interceptors and error mapping."""
