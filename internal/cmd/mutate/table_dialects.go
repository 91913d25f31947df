package main

func init() {
	tables["dialects"] = []mutation{
		// Filters of a topic map.
		{File: "transport/mqtt/dialect/filter.go", Old: "filter[i:] == \"/#\"", New: "false",
			Test: "./transport/mqtt/dialect -run TestFiltersMatchAsTheSpecificationSays"},
		{File: "transport/mqtt/dialect/filter.go", Old: "topic[0] == '$' && ", New: "topic[0] == '?' && ",
			Test: "./transport/mqtt/dialect -run TestFiltersMatchAsTheSpecificationSays"},
		{File: "transport/mqtt/dialect/topicsession.go", Old: "\tif !s.subscribed(topic) {\n\t\treturn\n\t}\n", New: "",
			Test: "./transport/mqtt/lean -run TestBroker"},

		// Messages that the wire has no place for.
		{File: "transport/mqtt/dialect/topicsession.go", Old: "case !s.properties && !s.t.DropProperties:",
			New: "case false:", Test: "./transport/mqtt -run TestBroker"},
		{File: "transport/mqtt/dialect/hub.go", Old: "m.Topic != \"\" || m.ResponseTopic != \"\"", New: "m.Topic != \"\"",
			Test: "./transport/mqtt/dialect -run TestAHubTakesNoTopicsOfOthers"},

		// What a dialect does before the connection counts as connected.
		{File: "transport/mqtt/lean/handshake.go", Old: "\t\tif !mine(topic, m) {\n\t\t\treturn true, nil\n\t\t}\n",
			New: "\t\tmine(topic, m)\n", Test: "./transport/mqtt/lean -run TestBroker"},
		{File: "transport/mqtt/lean/handshake.go", Old: "\t\tif mine == nil {\n\t\t\treturn true, nil\n",
			New: "\t\tif mine == nil {\n\t\t\treturn false, nil\n", Test: "./transport/mqtt/lean -run TestBroker"},
		{File: "transport/mqtt/dialect/handshake.go", Old: "\t\t\treturn p.wait(&p.published)\n", New: "\t\t\treturn nil\n",
			Test: "./transport/mqtt/lean -run TestBroker"},
		{File: "transport/mqtt/handshake.go", Old: "\tif e.answer != nil && s.answered(m) {", New: "\tif e.answer != nil {",
			Test: "./transport/mqtt -run TestBroker"},
		{File: "transport/mqtt/handshake.go", Old: "\tcase waits:\n\t\treturn s.await(ctx, nil, s.early.acked)\n", New: "",
			Test: "./transport/mqtt -run TestBroker"},

		// QoS 0 over paho, and ids of a SUBSCRIBE that a broker does not use for its messages.
		{File: "transport/mqtt/flusher.go", Old: "\t\t\t} else {\n\t\t\t\tc.report(out)\n", New: "\t\t\t} else {\n",
			Test: "./transport/mqtt -run TestBroker"},
		{File: "transport/mqtt/session.go", Old: "if p.AtMostOnce || s.atMostOnce {", New: "if p.AtMostOnce {",
			Test: "./transport/mqtt -run TestBroker"},
		{File: "transport/mqtt/session.go", Old: "[2]byte{issueID >> 8, issueID & 0xff}", New: "[2]byte{0, 0}",
			Test: "./transport/mqtt -run TestBroker"},
	}
}
