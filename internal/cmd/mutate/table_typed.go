package main

func init() {
	const (
		binding  = "twin/binding.go"
		evaluate = "twin/evaluate.go"
		reported = "twin/reported.go"
		sender   = "twin/sender.go"
		patch    = "internal/mergepatch/mergepatch.go"
		fields   = "internal/fields/fields.go"
		methods  = "methods/methods.go"
		errors   = "methods/errors.go"
	)
	tables["typed twins and methods"] = []mutation{
		// Desired properties.
		{File: binding, Old: "\tif !d.Full {\n\t\tmerged", New: "\tif true {\n\t\tmerged"},
		{File: binding, Old: "mergepatch.Merge(merged[p.Name], value)", New: "value"},
		{File: binding, Old: "unknown <= maxUnknown", New: "true"},
		{File: binding, Old: "len(text) > maxDesired", New: "len(text) < 0"},
		{File: binding, Old: "if err := b.check(b.set.Default); err != nil {",
			New: "if err := b.check(b.value); err != nil {"},
		{File: binding, Old: "\tb.client.HandleDesired(nil)\n", New: ""},
		{File: evaluate, Old: "mergepatch.Merge(b.usual[name], value)", New: "value"},
		{File: evaluate, Old: "\tb.fields.Field(to, name).Set(b.fields.Field(from, name))\n", New: ""},
		{File: evaluate, Old: "root(one.Field)", New: "one.Field + \".\""},
		{File: binding, Old: "\tb.settle(old, &next, refused)\n", New: ""},

		// Answers.
		{File: evaluate, Old: "!answered || touched[name] || is != last", New: "!answered || is == is"},
		{File: evaluate, Old: "is.status, is.description = pnp.Initial, \"by default\"", New: "is.status = pnp.OK"},
		{File: reported, Old: "alone = version == 0 || version == r.version+1", New: "alone = true"},
		{File: reported, Old: "\tr.acknowledged = nil // unknown until the hub acknowledges\n", New: ""},
		{File: sender, Old: "\t\tif hopeless(err) {\n\t\t\tcontinue\n\t\t}\n", New: ""},
		{File: sender, Old: "\t\ts.restore(doc)\n", New: ""},
		{File: sender, Old: "\tcase <-news:\n", New: ""},
		{File: sender, Old: "\t\ts.cancel()\n", New: ""},

		// Merge patches.
		{File: patch, Old: "\t\t\tdelete(merged, name)\n\t\t\tcontinue\n", New: "\t\t\tdelete(merged, name)\n"},
		{File: patch, Old: "patch[name] = Merge(nil, value) // without null members", New: "patch[name] = value"},
		{File: patch, Old: "(a == b || sameNumber(string(a), string(b)))", New: "a == b"},

		// Fields.
		{File: fields, Old: "\t\terrs = add(errs, &Error{name, ErrUnknown})\n", New: "\t\t_ = name\n"},
		{File: fields, Old: "\tdecoder.DisallowUnknownFields()\n", New: ""},
		{File: errors, Old: "f.Field = scrub.Peer(named[0].Field)", New: "f.Field = named[0].Field"},
		{File: fields, Old: "len(errs) == maxErrors", New: "false"},
		{File: fields, Old: "errors.New(scrub.Error(err))", New: "err"},
		{File: fields, Old: "strings.TrimPrefix(name+\".\"+wrong.Field, \".\")", New: "wrong.Field"},

		// Methods.
		{File: methods, Old: "\t\t\tdefer func() { <-m.places }()\n", New: ""},
		{File: methods, Old: "errors.Is(ctx.Err(), context.DeadlineExceeded)", New: "true"},
		{File: methods, Old: "\tif ok {\n\t\terr = v.Validate()", New: "\tif false {\n\t\terr = v.Validate()"},
		{File: errors, Old: "status < 100 || status > 599", New: "false"},
	}
}
