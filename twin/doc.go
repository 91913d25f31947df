// Package twin binds the twin of a device or module to Go structs: desired properties into one
// (Bind), reported properties from one (Reporter).
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
// # Properties and fields
//
// Each exported field is one property of the root; its name is that of encoding/json, and matches
// exactly. A value is decoded by encoding/json. Desired values that are objects are merged into the
// default's object. A property that no back end desires has its default; so has one that was
// removed with null. A property that no field has is reported to OnError; within an object such a
// member is ignored. Embedded structs and the tag's option "string" are errors of Bind.
// Components of Plug and Play are for package pnp, which this package uses for the rest of its
// conventions.
//
// # Invalid values
//
// A property with an invalid value keeps the one in force, and the other properties of the same
// change take effect. A value that contradicts another one is refused as Check says. The values in
// force have all passed Check.
//
// # Answers
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
// # Concurrency
//
// Check and Apply run on the client's goroutine for desired properties, one change at a time. All
// methods are safe for concurrent use. Panics of callbacks count as errors.
//
// The package uses encoding/json and reflect, which are large for a board.
//
// Sources: RFC 7396; Microsoft, "IoT Plug and Play conventions".
package twin
