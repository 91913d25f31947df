package main

func init() {
	const (
		properties = "transport/amqp/properties.go"
		message    = "transport/amqp/message.go"
		telemetry  = "transport/amqp/telemetry.go"
		encode     = "transport/amqp/encode.go"
	)
	tables["amqpproperties"] = []mutation{
		{File: properties, Old: "{\"Diagnostic-Id\", annotations, false,", New: "{\"Diagnostic-Id\", annotations, true,",
			Test: "./transport/amqp -run TestAMessageAtAnInput"},
		{File: properties, Old: "*field == \"\" { // an annotation goes first", New: "true {",
			Test: "./transport/amqp -run TestAMessageAtAnInput"},
		{File: properties, Old: "if q := &properties[i]; hub || i == 0 {", New: "if q := &properties[i]; true {",
			Test: "./transport/amqp -run TestNamesOfTheHubOutsideOfIt"},
		{File: properties, Old: "q.also && (hub || i == 0)", New: "q.also",
			Test: "./transport/amqp -run TestNamesOfTheHubOutsideOfIt"},
		{File: properties, Old: "return string(v), true", New: "return string(v), false",
			Test: "./transport/amqp -run TestAMessageAtAnInput"},
		{File: encode, Old: "dst = appendOptional(dst, amqpenc.Binary, system.UserID)",
			New:  "dst = appendOptional(dst, amqpenc.String, system.UserID)",
			Test: "./transport/amqp -run TestAllSystemPropertiesInTheirEncoding"},
		{File: encode, Old: "case system.To != \"\":\n\t\tfields = 3", New: "case system.To != \"\":\n\t\tfields = 2",
			Test: "./transport/amqp -run TestEachPropertyAlone"},
		{File: message, Old: "if system != none {", New: "if system.To != \"\" {",
			Test: "./transport/amqp -run TestEachPropertyAlone"},
		{File: telemetry, Old: "\"AMQP\", \"System.To\", \"System.UserID\")", New: "\"AMQP\")",
			Test: "./transport/amqp -run TestFieldsOfAHubAreRefusedForOtherBrokers"},
		{File: telemetry, Old: "if e == nil && broker {", New: "if e == nil && !broker {",
			Test: "./transport/amqp -run TestFieldsOfAHubAreRefusedForOtherBrokers"},
	}
}
