package main

func init() {
	const (
		builder  = "cloudevents/builder.go"
		values   = "cloudevents/values.go"
		uri      = "cloudevents/uri.go"
		media    = "cloudevents/mediatype.go"
		reader   = "cloudevents/json.go"
		envelope = "cloudevents/envelope.go"
		message  = "cloudevents/message.go"
		limits   = "transport/mqtt/internal/limits/limits.go"
	)
	const presets = "./transport/mqtt/awsiot ./transport/mqtt/eventgrid"
	tables["cloudevents"] = []mutation{
		// The rules of attributes.
		{File: builder, Old: "if b.count++; b.count > MaxAttributes {", New: "if b.count++; b.count > MaxAttributes+1 {"},
		{File: builder, Old: "} else if fixed(name) {", New: "} else if false {"},
		{File: builder, Old: "y < 0 || y > 9999", New: "y < 0"},
		{File: builder, Old: "!validReference(e.DataSchema, true)", New: "!validReference(e.DataSchema, false)"},
		{File: builder, Old: "len(name) > MaxValue || len(value) > MaxValue", New: "false"},
		{File: values, Old: "return name != \"\"", New: "return true"},
		{File: values, Old: ", r <= 0x9f", New: ""},
		{File: values, Old: ", r >= 0xfdd0 && r <= 0xfdef", New: ""},
		{File: values, Old: "\tif leap {\n\t\tt = t.Add(time.Second)\n\t}\n", New: ""},
		{File: uri, Old: "absolute && hasFragment || ", New: "absolute && hasFragment && query == \"x\" || "},
		{File: uri, Old: "return false // the first segment", New: "return !absolute // the first segment"},
		{File: uri, Old: " || s != \"\" && s[0] != ':'", New: ""},

		// Data in JSON.
		{File: builder, Old: "(!utf8.Valid(e.Data) || !jsonscan.Valid(e.Data))", New: "!jsonscan.Valid(e.Data)"},
		{File: builder, Old: "m.isText() && utf8.Valid(e.Data)", New: "m.isText()"},
		{File: builder, Old: "c >= ' ' && c != '\"' && c != '\\\\'", New: "c != '\"' && c != '\\\\'"},
		{File: media, Old: "(m.charset == \"\" || ", New: "(true || "},
		{File: reader, Old: "\tif !utf8.Valid(text) {", New: "\tif !utf8.Valid(text[:0]) {"},
		{File: reader, Old: "case r.data != nil && r.base64 != nil:", New: "case false:"},
		{File: reader, Old: "e.DataContentType, e.Data = \"application/json\", r.data", New: "e.Data = r.data"},
		{File: reader, Old: "} else if loneSurrogate(raw) {", New: "} else if false {"},
		{File: reader, Old: "if s == name {", New: "if s == name && name == \"\" {"},
		{File: reader, Old: "\tcase string(value) == \"null\": // the same as absent\n", New: ""},

		// Messages.
		{File: envelope, Old: "m.ResponseTopic != \"\" && !properties", New: "false"},
		{File: envelope, Old: "\t\t\trepeated(m.Properties[:i], p.Name):\n", New: "\t\t\tfalse:\n"},
		{File: envelope, Old: "!ok || !validName(name) {", New: "!ok || name == \"\" {"},
		{File: envelope, Old: "t.only {", New: "t.charset != \"\" {"},
		{File: envelope, Old: "!properties || v.Structured", New: "!properties"},
		{File: message, Old: "!ascii.EqualFold(strings.Trim(t, \" \\t\"), ContentType)", New: "t == \"\""},
		{File: message, Old: "ok && validName(name) && name != \"datacontenttype\"", New: "ok && validName(name)"},
		{File: message, Old: "m.ContentType == \"\" && len(m.Properties) == 0", New: "false"},

		// Limits of services.
		{File: limits, Old: "\t\th.MaxSize = service.Size\n", New: "", Test: presets},
		{File: limits, Old: "\t\ttopic = s.Counted(topic)\n", New: "", Test: presets},
		{File: limits, Old: "strings.Count(topic, \"/\")+1", New: "strings.Count(topic, \"/\")", Test: presets},
		{File: limits, Old: "if s.Runes {", New: "if false {", Test: presets},
		{File: limits, Old: "limit == 0 || n <= limit", New: "limit == 0 || n < limit", Test: presets},
	}
}
