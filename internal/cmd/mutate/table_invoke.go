package main

func init() {
	tables["invoke"] = []mutation{
		// A call whose answer was lost is sent again.
		{File: "edge/invoke_call.go", Old: "c.unknown = c.unknown || conn.Sent()", New: "",
			Test: "./edge -run TestACallWithAnUnknownOutcomeIsSentOnce"},
		{File: "edge/invoke_call.go", Old: "\t\tinfo.Safe = classify.SafeNo\n", New: "",
			Test: "./edge -run TestACallWithAnUnknownOutcomeIsSentOnce"},
		{File: "edge/invoke_answer.go", Old: "outcome{mayHaveRun: true}", New: "outcome{mayHaveRun: false}",
			Test: "./edge -run TestNoStatusIsRepeated"},
		{File: "edge/invoke_answer.go", Old: "{408, 408, true,", New: "{408, 408, false,",
			Test: "./edge -run TestEachAnswerHasItsKind"},
		{File: "edge/invoke_answer.go", Old: "{400027, 400027, true,", New: "{400027, 400027, false,",
			Test: "./edge -run TestEachAnswerHasItsKind"},
		{File: "edge/invoke_answer.go", Old: "json.Unmarshal(body, &r) != nil || r.Status == nil",
			New: "json.Unmarshal(body, &r) != nil", Test: "./edge -run TestACallWithAnUnknownOutcomeIsSentOnce"},
		// A call that was not sent is not retried, or the caller is told that it may have run.
		{File: "edge/invoke_call.go", Old: "info.Safe = classify.SafeYes", New: "",
			Test: "./edge -run TestEachAnswerHasItsKind"},
		{File: "internal/hubconn/conn.go", Old: "\t\tl.writes.begun.Store(false)\n", New: "\t\tl.writes.begun.Store(true)\n",
			Test: "./internal/hubconn -run TestNothingWasSent"},
		{File: "edge/invoke_call.go", Old: "\tif c.unknown {\n\t\treturn operr.OutcomeUnknown(&own)\n\t}\n", New: "",
			Test: "./edge -run TestACancelledCall"},
		// The limit of an attempt forgets one of its parts.
		{File: "edge/invoke_call.go", Old: "c.limit = response + connect + v.opt.Margin",
			New: "c.limit = response + v.opt.Margin", Test: "./edge -run TestACallWithAnUnknownOutcomeIsSentOnce"},
		// Fractions of a second are cut off.
		{File: "edge/invoke_call.go", Old: "int((d + time.Second - 1) / time.Second)", New: "int(d / time.Second)",
			Test: "./edge -run TestInvokeSendsWhatAGatewayExpects"},
		// A dead connection is used again; one that is kept for too long is.
		{File: "edge/invoke_conns.go", Old: "\t\tcase <-c.Gone():\n\t\t\thangUp(c)\n", New: "",
			Test: "./edge -run TestConnectionsOfAnInvoker"},
		{File: "edge/invoke_conns.go", Old: "time.AfterFunc(idleConnLimit,", New: "time.AfterFunc(time.Hour,",
			Test: "./edge -run TestConnectionsOfAnInvoker"},
		{File: "edge/invoke_conns.go", Old: "p.closed || len(p.idle) == maxIdleConns", New: "p.closed",
			Test: "./edge -run TestConnectionsOfAnInvoker"},
		{File: "edge/invoke.go", Old: "\tv.conns.close()\n", New: "", Test: "./edge -run TestCloseOfAnInvoker"},
		// A method's time-outs prolong the dial.
		{File: "edge/invoke.go", Old: "ctx, cancel := context.WithTimeout(ctx, v.opt.Margin)",
			New:  "ctx, cancel := context.WithTimeout(ctx, 10*v.opt.Margin)",
			Test: "./edge -run TestACallThatWasNotSentIsRetried"},
		// The gateway does not learn who calls.
		{File: "edge/invoke_call.go", Old: "v.creds.DeviceID + \"/\" + v.creds.ModuleID", New: "v.creds.DeviceID",
			Test: "./edge -run TestAModuleCallsMethodsThroughTheGateway"},
		// The second token of a refused request is not the last.
		{File: "internal/hubauth/do.go", Old: "case !again && (askTime", New: "case (askTime",
			Test: "./edge -run TestARefusedTokenOfASource"},
	}
}
