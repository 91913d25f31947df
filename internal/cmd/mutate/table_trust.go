package main

func init() {
	const (
		trust = "edge/trust.go"
		roots = "internal/dialer/roots.go"
	)
	tables["trust"] = []mutation{
		// A daemon that hangs delays connections that an old bundle can serve.
		{File: trust, Old: "context.WithTimeout(ctx, maxWait)", New: "context.WithTimeout(ctx, 10*maxWait)",
			Test: "./edge -run TestAHangingDaemon"},
		{File: trust, Old: " && time.Since(t.failed) >= minRetry", New: "", Test: "./edge -run TestAHangingDaemon"},
		{File: trust, Old: "\t\tt.failed = time.Now()\n", New: "", Test: "./edge -run TestAHangingDaemon"},
		{File: trust, Old: "due = age >= minFetch",
			New: "due = age >= minFetch && time.Since(t.failed) >= minRetry", Test: "./edge -run TestARefusalWaits"},
		{File: trust, Old: "minRetry = time.Minute", New: "minRetry = time.Hour",
			Test: "./edge -run TestAnOldBundleIsReplaced"},
		{File: trust, Old: "if last, due := t.bundle(refused); !due {", New: "if last, _ := t.bundle(refused); false {",
			Test: "./edge -run TestClientsShareTheBundle"},
		{File: trust, Old: "case !due:", New: "case !due && refused != nil:",
			Test: "./edge -run TestARefusalDelaysNoOther"},

		// Certificates of proxies are not a matter of the server's roots.
		{File: roots, Old: "handshake, ok := errors.AsType[*handshakeError](err)", New: "handshake, ok := err, err != nil",
			Test: "./internal/dialer -run TestCertificatesOfOthers"},
		{File: "internal/dialer/dialer.go", Old: "&handshakeError{clockError(err, config.Time())}",
			New: "clockError(err, config.Time())", Test: "./internal/dialer -run TestNewerRootsAreUsed"},
	}
}
