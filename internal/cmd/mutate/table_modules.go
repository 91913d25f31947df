package main

func init() {
	const (
		device  = "./device -run "
		dialect = "./transport/mqtt/dialect -run "
		bag     = "./transport/mqtt/internal/bag -run "
	)
	tables["modules"] = []mutation{
		{File: "device/inputs.go", Old: "\treturn transport.Reject\n", New: "\treturn transport.Release\n",
			Test: device + "TestAMessageOfAnInputWithoutAHandler"},
		{File: "device/inputs.go", Old: "\tp.unhandled = handle == nil\n", New: "\tp.unhandled = len(b.inputs) == 0\n",
			Test: device + "TestAMessageOfAnInputWithoutAHandler"},
		{File: "device/inputs.go", Old: "\tif c.creds.ModuleID == \"\" {\n\t\treturn\n\t}\n", New: "",
			Test: device + "TestADeviceHasNoInputs"},
		{File: "device/inputs.go", Old: "b.inputs = slices.Delete(b.inputs, at, at+1)", New: "b.inputs[at].handle = b.handle",
			Test: device + "TestHandlersOfInputsAreReplacedAndRemoved"},
		{File: "device/inbox.go", Old: "b.handle != nil || linked.Inputs() && len(b.inputs) > 0", New: "b.handle != nil",
			Test: device + "TestHandlersOfInputsAreForEveryConnection"},
		{File: "device/inbox.go", Old: "\t*p.system = *p.msg.System\n\tp.msg.System = p.system\n", New: "",
			Test: device + "TestAHandlerHasItsOwnCopyOfTheSystemProperties"},
		{File: "device/inbox_std.go", Old: "reuseDeliveries = false", New: "reuseDeliveries = true",
			Test: device + "TestAMessageKeepsItsMemoryAfterItsHandler"},
		{File: "transport/mqtt/dialect/hubsession.go", Old: "deviceBound) + inputs", New: "deviceBound) + deviceBound",
			Test: dialect + "TestNamesOfInputs"},
		{File: "transport/mqtt/dialect/hubsession.go", Old: "bag.Unescape(input)", New: "input",
			Test: dialect + "TestNamesOfInputs"},
		{File: "transport/mqtt/dialect/hubsession.go", Old: "input == \"\" {\n\t\t\treturn", New: "false {\n\t\t\treturn",
			Test: dialect + "TestNamesOfInputs"},
		{File: "transport/mqtt/dialect/hub.go", Old: "m.Output != \"\" || m.System != nil", New: "m.Output != \"\"",
			Test: dialect + "TestSmallDialectsRefuse"},
		{File: "transport/mqtt/internal/bag/all.go", Old: "\t*p = transport.SystemProperties{}\n", New: "",
			Test: bag + "TestDecodeAllReplaces"},
		{File: "transport/mqtt/internal/bag/all.go", Old: "\tif rest > 0 {\n\t\tpairs++\n\t}\n", New: "",
			Test: bag + "TestEachSystemPropertyHasItsName"},
		{File: "internal/operr/operr.go", Old: "f.value != \"\" && !slices", New: "f.value != \"x\" && !slices",
			Test: "./internal/operr -run TestNoPlaceOutsideHubs"},
		{File: "outbox/codec.go", Old: "\tallFlags = 1<<iota - 1\n", New: "\tallFlags = 255\n",
			Test: "./outbox -run TestMessagesOfOtherVersions"},
		{File: "outbox/codec.go", Old: "m.Output != \"\" || system !=", New: "system !=",
			Test: "./outbox -run TestTheFormatOfMessages"},
		{File: "cloudevents/envelope.go", Old: "refused != nil {\n\t\treturn refused", New: "false {\n\t\treturn refused",
			Test: "./cloudevents -run TestAnEnvelopeHasNoPlace"},
	}
}
