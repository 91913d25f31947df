package main

func init() {
	tables["fleetload"] = []mutation{
		// Each device is in one process.
		{File: "examples/fleet/devices.go", Old: "d.first += n * perJob", New: "d.first += n",
			Test: "./examples/fleet -run TestJobsShareOutAllDevices"},
		{File: "examples/fleet/devices.go", Old: "min(perJob, d.count-n*perJob)", New: "perJob",
			Test: "./examples/fleet -run TestJobsShareOutAllDevices"},
		{File: "examples/fleet/devices.go", Old: "if n >= jobs {", New: "if n > jobs {",
			Test: "./examples/fleet -run TestJobsShareOutAllDevices"},

		{File: "examples/fleet/main.go", Old: "setup.PortsOf(s.transport); err != nil",
			New: "setup.PortsOf(s.transport); false", Test: "./examples/fleet -run TestWrongNames"},
		{File: "examples/fleet/main.go", Old: "rulesOf(s.policy, s.devices.count); err != nil",
			New: "rulesOf(s.policy, s.devices.count); false", Test: "./examples/fleet -run TestWrongNames"},

		// The ledger has the messages that the hub acknowledged.
		{File: "examples/fleet/load.go", Old: "case registers != nil:", New: "case false:",
			Test: "./examples/fleet -run TestDevicesRegisterFirst"},
		{File: "examples/fleet/ledger.go", Old: "l.keepLocked(err)\n\t\treturn", New: "l.keepLocked(err)",
			Test: "./examples/fleet -run TestLedger"},
		{File: "examples/fleet/ledger.go", Old: "max(1, s.Connections) - 1", New: "s.Connections",
			Test: "./examples/fleet -run TestLedger"},
		{File: "examples/fleet/ledger.go", Old: "|os.O_APPEND", New: "|os.O_TRUNC",
			Test: "./examples/fleet -run TestLedger"},
		{File: "examples/fleet/ledger.go", Old: "l.ids.Available() <= len(id)", New: "false",
			Test: "./examples/fleet -run TestAKilledProcess"},
		{File: "examples/fleet/load.go", Old: "d.client.Flush(flushCtx)", New: "flushCtx.Err()",
			Test: "./examples/fleet -run TestFourProcessesLoseNothing"},
		{File: "examples/fleet/load.go", Old: "context.WithoutCancel(ctx)", New: "ctx",
			Test: "./examples/fleet -run TestFourProcessesLoseNothing"},
		{File: "examples/fleet/load.go", Old: "\td.settle(book, true)\n", New: "",
			Test: "./examples/fleet -run TestFourProcessesLoseNothing"},
		{File: "examples/fleet/load.go", Old: "now.State == device.Disconnected && now.Err != nil", New: "false",
			Test: "./examples/fleet -run TestDurationAndUnknownDevices -timeout 60s"},
	}
}
