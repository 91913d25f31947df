// Package methods makes handlers of direct methods from functions with typed payloads. The client
// routes the calls by name; this package decodes payloads, encodes results, and turns errors into
// statuses.
//
//	type blink struct {
//		Times int `json:"times"`
//	}
//	type blinked struct {
//		Times int `json:"times"`
//	}
//	err := methods.Handle(client, "blink", func(ctx context.Context, in blink) (blinked, error) {
//		if in.Times < 1 {
//			return blinked{}, &methods.FieldError{Field: "times", Err: errors.New("give 1 or more")}
//		}
//		return blinked{in.Times}, lamp.Blink(ctx, in.Times)
//	}, nil)
//
// # Statuses
//
// The body of every failure is {"message":"..."}; with a wrong field also {"field":"..."}.
//
//	200  the result (another status: a result with a method Status)
//	400  the payload is not JSON in UTF-8, or a field is wrong or unknown; the handler returned a FieldError
//	404  no handler: the client's own answer
//	500  the handler returned another error (without its text), or panicked, or its result is no JSON
//	503  Options.Limit calls run already; the client is busy or closed
//	504  the handler returned an error after the call's time was over
//	any  the handler returned an Error
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
// # Limits
//
// At most device.Options.MethodLimit handlers run at a time, for all methods together;
// Options.Limit is for one method. ctx ends after device.Options.MethodTimeout or the shorter
// Options.Timeout. A handler that ignores its ctx keeps its place until it returns.
//
// It uses encoding/json and reflect, which are large for a board.
package methods
