# Short names for the checks; .ci/run is all of them, in the order that fails early.
.PHONY: all api bench build cross examples fuzz interop licences lint long otel race sim test tpm vulnerabilities

all:
	.ci/run

test:
	go test ./...

api bench build cross examples fuzz interop licences lint long otel race sim tpm vulnerabilities:
	.ci/run $@
