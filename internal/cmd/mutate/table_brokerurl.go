package main

func init() {
	const (
		parse  = "internal/brokerurl/brokerurl.go"
		params = "internal/brokerurl/parameter.go"
	)
	tables["brokerurl"] = []mutation{
		// Errors show nothing of the URL.
		{File: params, Old: `return " is not known; known are "`, New: `return " (" + name + ") is not known; known are "`},
		{File: parse, Old: `return "", bad("its scheme is not known; known are "`,
			New:  `return "", bad("its scheme " + scheme + " is not known; known are "`,
			Test: "./internal/brokerurl -run FuzzParse"},
		{File: parse, Old: "u.Password = transport.Hide(password)",
			New: "u.Path, u.Password = password, transport.Hide(password)"},

		// Delimiters within a password.
		{File: parse, Old: `strings.Contains(path+query, "@")`, New: "false"},
		{File: parse, Old: `strings.Contains(path, "@")`, New: "false"},
		{File: parse, Old: `strings.Contains(address, "@")`, New: "false"},
		{File: parse, Old: `strings.Contains(rest, "#")`, New: "false"},
		{File: parse, Old: `user, password, found := strings.Cut(info, ":")`,
			New: "user, password, found := info, \"\", false\n\tif i := strings.LastIndex(info, \":\"); i >= 0 {\n" +
				"\t\tuser, password, found = info[:i], info[i+1:], true\n\t}"},

		// Hosts and ports.
		{File: parse, Old: " || port[0] == '0'", New: ""},
		{File: parse, Old: "ipErr != nil || !ip.Is6()", New: "ipErr != nil || !ip.IsValid()"},
		{File: parse, Old: "net.JoinHostPort(host, port)", New: `net.JoinHostPort("", port)[:0] + host + ":" + port`},

		// Texts.
		{File: parse, Old: "!utf8.Valid(text)", New: "!utf8.Valid(text) && false"},
		{File: parse, Old: "strings.IndexByte(string(text), 0) >= 0", New: "false"},

		// Parameters.
		{File: params, Old: "given[i] && !(Parameters[i].repeated && p == MQTT)", New: "given[i] && !Parameters[i].repeated"},
		{File: params, Old: "Parameters[i].Protocols&p == 0:", New: "false:"},
		{File: params, Old: `raw == "" && !Parameters[i].empty`, New: "false"},
		{File: params, Old: "u.SessionExpiry != 0 && !u.MQTT5", New: "false"},
		{File: params, Old: "!ok || n == 0", New: "!ok"},

		// Options of the transports.
		{File: params, Old: " && u.Password != nil", New: ""},
		{File: "transport/mqtt/parsebroker.go", Old: "case s.MQTT5:", New: "case false:",
			Test: "./transport/mqtt/internal/broker -run TestWrongURLs"},
		{File: "transport/mqtt/internal/broker/broker.go", Old: "if webSocket == nil {", New: "if false {",
			Test: "./transport/mqtt/internal/broker -run TestWrongURLs"},
		{File: "transport/mqtt/internal/broker/broker.go", Old: "Retain: m.Retain}", New: "}",
			Test: "./transport/mqtt/internal/broker -run TestEachParameter"},
		{File: parse, Old: "Anonymous: u.UserName == \"\"", New: "Anonymous: false",
			Test: "./transport/mqtt/internal/broker -run TestAnonymousClients"},
		{File: "transport/mqtt/options.go", Old: "Will: o.Will, Certificates", New: "Certificates",
			Test: "./transport/mqtt -run TestTheWillIsPublished"},

		// Brokers over AMQP.
		{File: "transport/amqp/muxdial.go", Old: "m.opt.userName(creds) != c.user && m.opt.Addresses != nil", New: "false",
			Test: "./transport/amqp -run TestADeviceWithAnotherUserName"},
		{File: "transport/amqp/telemetry.go", Old: "\t\tt.refuseFields()\n", New: "",
			Test: "./transport/amqp -run TestFieldsOfMQTTAreRefused"},
		{File: "internal/placeholder/placeholder.go", Old: "out = append(out, device...)",
			New: "out = append(out, module...)"},

		// IPv6 hosts, for every transport.
		{File: "transport/credentials.go", Old: "if gap {\n\t\t\t\treturn false\n\t\t\t}", New: "",
			Test: "./transport -run FuzzIPv6Hosts"},
		{File: "transport/credentials.go", Old: "gap && groups < 8 || !gap && groups == 8", New: "gap || groups == 8",
			Test: "./transport -run FuzzIPv6Hosts"},
		{File: "internal/dialer/dialer.go", Old: `return "[" + host + "]"`, New: "return host",
			Test: "./transport/internal/websock -run TestTheRequestNames"},
		{File: "internal/dialer/dialer.go", Old: "Host: URLHost(creds.DialHost())", New: "Host: creds.DialHost()",
			Test: "./internal/dialer -run TestTheProxyOfAnIPv6Host"},
		{File: "internal/dialer/dialer.go", Old: " && !d.Network.Anonymous", New: ""},
		{File: "internal/dialer/dialer.go", Old: ` || creds.UserName != ""`, New: ""},
	}
}
