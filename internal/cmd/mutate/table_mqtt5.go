package main

func init() {
	const (
		packet   = "internal/mqtt5/packet.go"
		property = "internal/mqtt5/property.go"
		incoming = "internal/mqtt5/incoming.go"
		outgoing = "internal/mqtt5/outgoing.go"
		reasons  = "transport/mqtt/internal/wire/reasons.go"
		connect  = "transport/mqtt/lean/mqtt5_connect.go"
		send     = "transport/mqtt/lean/mqtt5_send.go"
		receive  = "transport/mqtt/lean/mqtt5_receive.go"
		message  = "transport/mqtt/lean/mqtt5_message.go"
		auth     = "transport/mqtt/lean/mqtt5_auth.go"
		inbox    = "device/inbox.go"
	)
	tables["mqtt5"] = []mutation{
		// The codec.
		{File: packet, Old: "if p[i] == 0 && i > 0 {", New: "if false {", Test: "./internal/mqtt5 -run TestDecoding"},
		{File: packet, Old: "want != anyFlags && want != h.Flags:", New: "want != anyFlags && want < h.Flags:",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: packet, Old: "strings.IndexByte(s, 0) < 0", New: "strings.IndexByte(s, 0) < 2",
			Test: "./internal/mqtt5 -run TestTextsThatCanBeSent"},
		{File: property, Old: "case r.in&set == 0:", New: "case r.in == 0:",
			Test: "./internal/mqtt5 -run TestThePropertyTableIsTheStandards"},
		{File: property, Old: "case seen>>v.ID&1 != 0 && r.many&set == 0:", New: "case seen>>v.ID&1 != 0 && r.many == 0:",
			Test: "./internal/mqtt5 -run TestThePropertyTableIsTheStandards|TestInvalidPackets"},
		{File: property, Old: "case v.Number < r.least ||", New: "case", Test: "./internal/mqtt5 -run TestDecoding"},
		{File: property, Old: " || r.most > 0 && v.Number > r.most:", New: ":", Test: "./internal/mqtt5 -run TestDecoding"},
		{File: property, Old: "(validText(v.Text) && validText(v.Value))", New: "validText(v.Text)",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: property, Old: "if seen>>AuthData&1 != 0 && seen>>AuthMethod&1 == 0 {", New: "if false {",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: property, Old: "v.ID == ResponseTopic && ", New: "false && ", Test: "./internal/mqtt5 -run TestDecoding"},
		{File: property, Old: "size == 0 || int(n) > len(p)-size:", New: "size == 0:",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: incoming, Old: "if err == nil && len(rest) > 0 {", New: "if err == nil && len(rest) > 1 {",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: incoming, Old: "if _, ok := in.Properties.Number(TopicAlias); !ok {", New: "if false {",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: incoming, Old: "if _, ok := r.Properties.Number(SessionExpiry); ok {", New: "if false {",
			Test: "./internal/mqtt5 -run TestDecoding"},
		{File: outgoing, Old: " && !strings.HasPrefix(f.Topic, \"$share/\")",
			New:  " && !strings.HasPrefix(f.Topic, \"$SYS/\")",
			Test: "./internal/mqtt5 -run TestEncoding"},

		// The engine.
		{File: connect, Old: "case c.Session && v.all.CleanSession:", New: "case false:",
			Test: "./transport/mqtt/lean -run TestBadAnswersToCONNECT"},
		{File: connect, Old: "\tif !c.Session { //", New: "\tif false { //",
			Test: "./transport/mqtt/lean -run TestAResumedSession|TestAMessageWithQoS2ComesOnce"},
		{File: connect, Old: "if n > 0 { // 0 means", New: "if true { // 0 means",
			Test: "./transport/mqtt/lean -run TestAWindowSmallerThanTheReceiveMaximumIsKept"},
		{File: connect, Old: "v.peer.aliases = min(n, maxAliases)", New: "v.peer.aliases = n",
			Test: "./transport/mqtt/lean -run TestTopicAliases"},
		{File: send, Old: "o.Dup = v.inFlight.Has(tag)", New: "_ = tag",
			Test: "./transport/mqtt/lean -run TestAResumedSession"},
		{File: receive, Old: "\t\tv.inFlight.Remove(tag) //", New: "\t\t//",
			Test: "./transport/mqtt/lean -run TestAResumedSession"},
		{File: send, Old: "if int(v.alias) <= len(v.aliases) {", New: "if v.alias > 0 {",
			Test: "./transport/mqtt/lean -run TestTopicAliases"},
		{File: send, Old: "size > v.peer.maxPacket {", New: "size > v.peer.maxPacket+1 {",
			Test: "./transport/mqtt/lean -run TestTheLimitsOfACONNACKHold"},
		{File: receive, Old: "case v.waiting+v.pending >= v.receiveMaximum:", New: "case v.waiting >= v.receiveMaximum:",
			Test: "./transport/mqtt/lean -run TestTheReceiveMaximumHolds"},
		{File: receive, Old: "again := in.QoS == 2 && v.received.Has(id)", New: "again := false",
			Test: "./transport/mqtt/lean -run TestAMessageWithQoS2ComesOnce"},
		{File: send, Old: "full = v.declined >= v.receiveMaximum", New: "full = false",
			Test: "./transport/mqtt/lean -run TestReleasedMessages"},
		{File: send, Old: "if second && uint16(ref[2])<<8|uint16(ref[3]) != v.generation {", New: "if false {",
			Test: "./transport/mqtt/lean -run TestAVerdictOnQoS2"},
		{File: receive, Old: "full := len(v.control)+ackSize > v.maxControl()", New: "full := false",
			Test: "./transport/mqtt/lean -run TestAnswersThatTheBrokerDoesNotRead"},
		{File: receive, Old: "case ok && h.Size+h.Body > v.opt.MaximumPacketSize:", New: "case false:",
			Test: "./transport/mqtt/lean -run TestABoardAnnouncesItsReadBuffer|TestBrokersThatBreakTheProtocol"},
		{File: message, Old: "if len(m.Properties) < maxProperties {", New: "if true {",
			Test: "./transport/mqtt/lean -run TestOnlyTheFirstProperties"},
		{File: auth, Old: "\tcase !due:\n", New: "\tcase false:\n",
			Test: "./transport/mqtt/lean -run TestFailuresOfRenewal"},
		{File: auth, Old: "\tcase rounds > maxRounds:\n", New: "\tcase rounds > 2*maxRounds:\n",
			Test: "./transport/mqtt/lean -run TestFailuresOfRenewal"},
		{File: auth, Old: "\ttoken.Text = nil // it is no password\n", New: "",
			Test: "./transport/mqtt/lean -run TestTheTokenAsAuthenticationData"},
		{File: inbox, Old: "if p.session == b.session || p.once {", New: "if p.session == b.session {",
			Test: "./device -run TestDeliveriesWithOnce|TestADeliveryWithOnce"},
		{File: inbox, Old: "if !b.deliveries[at].once && !(b.handling && i == b.answered) {",
			New: "if !b.deliveries[at].once {", Test: "./device -run TestDeliveriesWithOnce|TestADeliveryWithOnce"},

		// What reason codes mean.
		{File: reasons, Old: "if e.Packet == PacketDisconnect && e.Kind()", New: "if e.Kind()",
			Test: "./transport/mqtt/internal/wire -run TestKindsOfReasonCodes"},
		{File: reasons, Old: "if e.Code == takenOver {", New: "if false {",
			Test: "./transport/mqtt/internal/wire -run TestATakenOverSession"},
		{File: reasons, Old: "\treturn status.PeerText(string(b))", New: "\treturn string(b) + status.PeerText(\"\")",
			Test: "./transport/mqtt/internal/wire -run TestTextsOfReasonErrors"},
	}
}
