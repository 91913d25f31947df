// Package twin types the twin and the direct methods of a device or module, with the conventions of
// IoT Plug and Play:
//
//	Bind          desired properties become a struct, and are answered
//	Reporter      a struct becomes reported properties
//	HandleMethod  a function with a typed payload and result becomes the handler of a method
//	Properties    writable properties of components, one by one; Patch has the answers to them
//	Command       the name of a component's command; SetComponent marks its telemetry
//
// # Desired properties
//
//	type Settings struct {
//		Interval int    `json:"interval"`
//		Level    string `json:"level"`
//	}
//	binding, err := twin.Bind(client, &twin.Options[Settings]{
//		Default: Settings{Interval: 60, Level: "info"},
//		Check: func(s Settings) error {
//			if s.Interval < 1 {
//				return &twin.FieldError{Field: "interval", Err: errors.New("give 1 or more")}
//			}
//			return nil
//		},
//		Apply: func(ctx context.Context, c twin.Change[Settings]) error { return restart(c.New) },
//	})
//
// Each exported field is one property of the root; its name is that of encoding/json, and matches
// exactly. A value is decoded by encoding/json. Desired values that are objects are merged into the
// default's object. A property that no back end desires has its default; so has one that was
// removed with null. A property that no field has is reported to OnError; within an object such a
// member is ignored. Embedded structs and the tag's option "string" are errors of Bind.
// Components are for Properties and Patch.
//
// A property with an invalid value keeps the one in force, and the other properties of the same
// change take effect. A value that contradicts another one is refused as Check says. The values in
// force have all passed Check.
//
// The device reports each property as Plug and Play wants it, also the defaults:
// {"value":in force,"ac":status,"av":version of the desired properties,"ad":description}.
//
//	200  in force
//	203  the default, because no value is desired
//	400  refused; the description says why
//	500  Apply failed or panicked; tried again with the next change
//
// Only what differs from the acknowledged answers is sent, as a merge patch. An answer that fails
// is sent again, after 10 s at first and at most 10 minutes, until it is replaced, refused as
// Invalid or TooLarge, or the client is closed. After a complete delivery of the desired properties
// the reported ones are read first, so a program that restarts sends only differences.
//
// Check and Apply run on the client's goroutine for desired properties, one change at a time. All
// methods of Binding and Reporter are safe for concurrent use. Panics of callbacks count as errors.
//
// # Methods
//
// The client routes calls by name. HandleMethod decodes payloads, encodes results, and turns errors
// into statuses.
//
//	type blink struct {
//		Times int `json:"times"`
//	}
//	type blinked struct {
//		Times int `json:"times"`
//	}
//	err := twin.HandleMethod(client, "blink", func(ctx context.Context, in blink) (blinked, error) {
//		if in.Times < 1 {
//			return blinked{}, &twin.FieldError{Field: "times", Err: errors.New("give 1 or more")}
//		}
//		return blinked{in.Times}, lamp.Blink(ctx, in.Times)
//	}, nil)
//
// The body of every failure is {"message":"..."}; with a wrong field also {"field":"..."}.
//
//	200  the result (another status: a result with a method Status)
//	400  the payload is not JSON in UTF-8, or a field is wrong or unknown; the handler returned a FieldError
//	404  no handler: the client's own answer
//	500  the handler returned another error (without its text), or panicked, or its result is no JSON
//	503  MethodOptions.Limit calls run already; the client is busy or closed
//	504  the handler returned an error after the call's time was over
//	any  the handler returned a MethodError
//
// The official SDKs differ about unknown methods. The one for C# answers 501; the one for
// Node.js answers nothing, so the caller waits for its time-out. The client answers 404, as HTTP
// does for a path that does not exist: 501 would say that the method exists and lacks an
// implementation. For a back end that expects 501, register a handler for the empty name:
//
//	err := client.HandleMethod("", func(context.Context, *device.MethodCall) (int, []byte) {
//		return 501, nil
//	})
//
// At most device.Options.MethodLimit handlers run at a time, for all methods together;
// MethodOptions.Limit is for one method. ctx ends after device.Options.MethodTimeout or the shorter
// MethodOptions.Timeout. A handler that ignores its ctx keeps its place until it returns.
//
// # Components
//
// Properties extracts the writable properties of the device and its components from desired
// properties, Patch builds the answers. The model that a device announces is an option of its
// transport (ModelID). This package does not read models: the program and the hub know which
// properties exist, and their types. The empty component name means the root of the model; a device
// without components uses it everywhere, and its telemetry needs no mark.
//
//	client.HandleDesired(func(ctx context.Context, d device.Desired) {
//		wishes, err := twin.Properties(d, "thermostat1")
//		var patch twin.Patch
//		for _, wish := range wishes {
//			patch.Answer(wish, twin.Answer{Status: twin.StatusOK})
//		}
//		body, err := patch.JSON()
//		_, err = client.PatchReported(ctx, body)
//	})
//	err = client.HandleMethod(twin.Command("thermostat1", "reboot"), reboot)
//	err = twin.SetComponent(message, "thermostat1")
//
// The package uses encoding/json and reflect, which are large for a board; a program that does not
// import it does not link them.
//
// Sources: RFC 7396; Microsoft, "IoT Plug and Play conventions".
package twin
