package main

func init() {
	const (
		hub  = "testbroker/internal/hub/"
		edge = "testbroker/internal/edge/route.go"
		test = "./testbroker -run "
	)
	tables["gateway"] = []mutation{
		{File: edge, Old: ", r.outputs && s.Output == \"\":", New: ":",
			Test: "./testbroker/internal/edge -run TestRoutesMatchTheirSources"},
		{File: edge, Old: " && !slices.Contains(to, r.to)", New: " && !slices.Contains(to[:0], r.to)",
			Test: "./testbroker/internal/edge -run TestRoutesEndAtEachEndpointOnce"},
		{File: hub + "c2dtopic.go", Old: "\tb.add(\"%24.sub\", m.Component)\n\tb.add(\"%24.exp\"",
			New: "\tb.add(\"%24.exp\"", Test: test + "TestInputMessageHasTheTopicOfAGateway"},
		{File: hub + "box.go", Old: "Inputs: 0x8000}", New: "Inputs: 1}",
			Test: test + "TestC2DMessagesAndInputsDoNotDisturbEachOther"},
		{File: hub + "registry.go", Old: "h.purge(id, Boxes[:]...)", New: "h.purge(id, Commands)",
			Test: test + "TestC2DMessagesAndInputsDoNotDisturbEachOther"},
		{File: hub + "message.go", Old: "\"$.diagid\":", New: "\"$.diag\":", Test: test + "TestSystemPropertiesOfTelemetry"},
		{File: hub + "gatewaystore.go", Old: "|| g.stopped || g.offline", New: "|| g.offline",
			Test: test + "TestTheStoreOutlivesARestart"},
		{File: hub + "gatewaystore.go", Old: "\t\tif twice == nil {", New: "\t\tif true {",
			Test: test + "TestTheGatewayAcknowledgesWhatItHasStored"},
		{File: hub + "gatewaystore.go", Old: "now.Sub(l.items[0].since) >= g.TTL",
			New:  "now.Sub(l.items[0].since) >= 2*g.TTL",
			Test: test + "TestAnOfflineGatewayStoresAndForwards"},
		{File: hub + "gatewaystore.go", Old: "ConnectionModuleID: sender.Module",
			New:  "ConnectionModuleID: m.ConnectionModuleID",
			Test: test + "TestRoutesTakeMessagesToInputsAndToTheHub"},
		{File: hub + "gateway.go", Old: "\t\topen = h.connsLocked(\"\")\n",
			New:  "\t\topen = h.connsLocked(\"\")\n\t\tg.upstream.clear()\n",
			Test: test + "TestAGatewayLosesNothing"},
		{File: hub + "gateway.go", Old: "return n >= h.Gateway.Clients", New: "return n > h.Gateway.Clients",
			Test: test + "TestLimitsOfClients"},
		{File: hub + "gateway.go", Old: "if device := h.Gateway.DeviceID; device != \"\" {",
			New:  "if device := \"\"; device != \"\" {",
			Test: test + "TestRoutesNameModulesOfTheEdgeDevice"},
		{File: hub + "reset.go", Old: "\th.resetGateway()\n", New: "", Test: test + "TestResetOfAGateway"},
		{File: hub + "twin.go", Old: "u.Desired != nil && t.apart == nil {", New: "u.Desired != nil {",
			Test: test + "TestAnOfflineGatewayHasCopiesOfTwins"},
		{File: hub + "gatewaytwin.go", Old: "if wasTree && isTree {", New: "if false && wasTree && isTree {",
			Test: test + "TestAnOfflineGatewayHasCopiesOfTwins"},
		{File: hub + "method.go", Old: "if to == nil || !call.local && h.Offline() {", New: "if to == nil {",
			Test: test + "TestAnOfflineGatewayGetsNoCallsAndNoC2DMessages"},
		{File: hub + "method.go", Old: "if !call.local && h.Offline() || h.take", New: "if h.take",
			Test: test + "TestAnOfflineGatewayGetsNoCallsAndNoC2DMessages"},
		{File: hub + "c2dqueue.go", Old: "!q.paused && !q.cutOff()", New: "!q.paused",
			Test: test + "TestAnOfflineGatewayGetsNoCallsAndNoC2DMessages"},
		{File: hub + "c2dqueue.go", Old: " && !before.C2D.Expiry.After(e.C2D.Expiry)", New: "",
			Test: test + "TestInputsExpireInALongQueue"},
		{File: hub + "c2dsettle.go", Old: "\tif q.loses(r.Client()) {\n\t\treturn true\n\t}\n", New: "",
			Test: test + "TestAGatewayLosesASettlement"},
		{File: "testbroker/internal/amqpfront/c2d.go", Old: " || q.Hub.Gateway != nil && unacked >= q.Limits.Window", New: "",
			Test: test + "TestAGatewayStopsAfterSixteenUnacknowledgedMessages"},
	}
}
