# Short names for the checks; .ci/run is all of them, in the order that fails early.
.PHONY: all test lint cross interop bench race sim fuzz licences api

all:
	.ci/run

test:
	go test ./...

lint cross interop bench race sim fuzz licences api:
	.ci/run $@
