package twin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

// registry keeps the handlers, as a client does.
type registry map[string]device.MethodHandler

func (r registry) HandleMethod(name string, handle device.MethodHandler) error {
	if name == "bad name" {
		return &transport.Error{Kind: transport.Invalid}
	}
	r[name] = handle
	return nil
}

// call calls a method, and returns status and body.
func (r registry) call(ctx context.Context, name, body string) string {
	status, answer := r[name](ctx, &device.MethodCall{Name: name, Body: []byte(body)})
	return fmt.Sprintf("%d %s", status, answer)
}

// accepted is a result with a status of its own.
type accepted struct {
	Job string `json:"job"`
}

func (accepted) Status() int { return 202 }

func TestPayloadsAndResultsAreTyped(t *testing.T) {
	r := registry{}
	require.NoError(t, twin.HandleMethod(r, "window", func(_ context.Context, in window) (accepted, error) {
		return accepted{fmt.Sprint(in.From, "-", in.To)}, nil
	}, nil))
	double := func(_ context.Context, in int) (int, error) { return 2 * in, nil }
	require.NoError(t, twin.HandleMethod(r, "double", double, nil))
	require.NoError(t, twin.HandleMethod(r, "ping", func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	}, nil))
	require.NoError(t, twin.HandleMethod(r, "loose", func(_ context.Context, in window) (any, error) { return in, nil },
		&twin.MethodOptions{AllowUnknown: true}))
	require.NoError(t, twin.HandleMethod(r, "raw", func(_ context.Context, in json.RawMessage) (json.RawMessage, error) {
		return in, nil
	}, nil))
	for _, c := range [][3]string{
		{"window", `{"from":1,"to":2}`, `202 {"job":"1-2"}`},
		{"window", ``, `202 {"job":"0-0"}`},
		{"window", `null`, `202 {"job":"0-0"}`},
		{"window", `{"from":2,"to":1}`, `400 {"message":"the window ends before it begins"}`},
		{"window", `{"from":"x","until":1}`, `400 {"message":"field from: want a whole number in its range, got a string; ` +
			`field until: there is no such field","field":"from"}`},
		{"window", `[1,2]`, `400 {"message":"want an object, got an array"}`},
		{"window", `{`, `400 {"message":"unexpected end of JSON input"}`},
		{"double", `21`, `200 42`},
		{"double", `"21"`, `400 {"message":"want a whole number in its range, got a string"}`},
		{"ping", ``, `200 {}`},
		{"ping", `{"x":1}`, `400 {"message":"field x: there is no such field","field":"x"}`},
		{"loose", `{"from":1,"to":2,"until":1}`, `200 {"from":1,"to":2}`},
		{"loose", `{"from":"x"}`, `400 {"message":"field from: want a whole number in its range, got a string",` +
			`"field":"from"}`},
		{"raw", `{"a":[1]}`, `200 {"a":[1]}`},
		{"raw", "\"\xe4\"", `400 {"message":"the payload is not JSON in UTF-8"}`},
	} {
		require.Equal(t, c[2], r.call(t.Context(), c[0], c[1]), "%s %s", c[0], c[1])
	}
}

// A member that is misspelled in an object of the payload is no default value, and a name of the
// caller's choice does not fill the answer.
func TestMembersWithoutAField(t *testing.T) {
	type plan struct {
		Window struct {
			From int `json:"from"`
		} `json:"window"`
	}
	r := registry{}
	call := func(_ context.Context, in plan) (int, error) { return in.Window.From, nil }
	require.NoError(t, twin.HandleMethod(r, "strict", call, nil))
	require.NoError(t, twin.HandleMethod(r, "loose", call, &twin.MethodOptions{AllowUnknown: true}))
	require.Equal(t, `400 {"message":"field window: there is no such field: form","field":"window"}`,
		r.call(t.Context(), "strict", `{"window":{"form":3}}`))
	require.Equal(t, "200 3", r.call(t.Context(), "strict", `{"window":{"from":3}}`))
	require.Equal(t, "200 3", r.call(t.Context(), "strict", `{"WINDOW":{"From":3}}`), "as encoding/json matches names")
	require.Equal(t, "200 0", r.call(t.Context(), "loose", `{"window":{"form":3}}`))

	long := strings.Repeat("\x01", 20_000)
	name, err := json.Marshal(long)
	require.NoError(t, err)
	for _, payload := range []string{`{%s:1}`, `{"window":{%s:1}}`} {
		answer := r.call(t.Context(), "strict", fmt.Sprintf(payload, name))
		require.Contains(t, answer, "there is no such field")
		require.Less(t, len(answer), 10_000)
	}
	deep := strings.Repeat("[", 60_000) + strings.Repeat("]", 60_000)
	require.Contains(t, r.call(t.Context(), "strict", `{"window":`+deep+`}`), `400 {"message":"`)
}

func TestErrorsBecomeStatuses(t *testing.T) {
	r := registry{}
	var fail error
	var seen []error
	require.NoError(t, twin.HandleMethod(r, "m", func(context.Context, struct{}) (string, error) { return "", fail },
		&twin.MethodOptions{OnError: func(err error) { seen = append(seen, err) }}))
	secret := errors.New("dial db with password hunter2")
	for _, c := range []struct {
		err  error
		want string
		seen int
	}{
		{secret, `500 {"message":"the method failed"}`, 1},
		{twin.MethodErrorf(409, "busy with %s", "work"), `409 {"message":"busy with work"}`, 0},
		{fmt.Errorf("wrapped: %w", twin.MethodErrorf(418, "tea")), `418 {"message":"tea"}`, 0},
		{twin.MethodErrorf(42, "odd"), `500 {"message":"odd"}`, 0},
		{&twin.MethodError{Status: 600, Message: "odd"}, `500 {"message":"odd"}`, 0},
		{&twin.FieldError{Field: "a", Err: errors.New("no")}, `400 {"message":"field a: no","field":"a"}`, 0},
		{context.DeadlineExceeded, `500 {"message":"the method failed"}`, 1}, // of another call: its own time is not over
	} {
		fail, seen = c.err, nil
		require.Equal(t, c.want, r.call(t.Context(), "m", ""))
		require.Len(t, seen, c.seen)
	}
	require.NoError(t, twin.HandleMethod(r, "nan", func(context.Context, struct{}) (float64, error) {
		return math.NaN(), nil
	}, nil))
	require.Equal(t, `500 {"message":"the method failed"}`, r.call(t.Context(), "nan", ""))
	require.NoError(t, twin.HandleMethod(r, "loud", func(context.Context, struct{}) (int, error) { return 0, secret },
		&twin.MethodOptions{OnError: func(error) { panic("in the logger") }}))
	require.Equal(t, `500 {"message":"the method failed"}`, r.call(t.Context(), "loud", ""))
}

func TestTheTimeOfACall(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := registry{}
		wait := func(ctx context.Context, _ struct{}) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		require.NoError(t, twin.HandleMethod(r, "wait", wait, &twin.MethodOptions{Timeout: 5 * time.Second}))
		begun := time.Now()
		require.Equal(t, `504 {"message":"the method did not finish in its time"}`, r.call(t.Context(), "wait", ""))
		require.Equal(t, 5*time.Second, time.Since(begun))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Equal(t, `503 {"message":"the device's client is being closed"}`, r.call(ctx, "wait", ""))
	})
}

func TestCallsBeyondTheLimitAreRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		r := registry{}
		release := make(chan struct{})
		wait := func(context.Context, struct{}) (int, error) { <-release; return 1, nil }
		require.NoError(t, twin.HandleMethod(r, "wait", wait, &twin.MethodOptions{Limit: 2}))
		answers := make(chan string, 2)
		for range 2 {
			go func() { answers <- r.call(context.Background(), "wait", "") }()
		}
		synctest.Wait()
		require.Equal(t, `503 {"message":"2 calls of the method run already"}`, r.call(t.Context(), "wait", ""))
		close(release)
		require.Equal(t, "200 1", <-answers)
		require.Equal(t, "200 1", <-answers)
		synctest.Wait()
		require.Equal(t, "200 1", r.call(t.Context(), "wait", ""), "places are free again")
	})
}

func TestMistakesAreErrorsOfHandleMethod(t *testing.T) {
	f := func(context.Context, window) (int, error) { return 0, nil }
	for want, o := range map[string]*twin.MethodOptions{
		"method m: option Limit is -1":     {Limit: -1},
		"method m: option Timeout is -1ns": {Timeout: -1},
	} {
		err := twin.HandleMethod(registry{}, "m", f, o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, twin.HandleMethod[int, int](registry{}, "m", nil, nil), "no function")
	embeds := func(context.Context, struct{ window }) (int, error) { return 0, nil }
	require.ErrorContains(t, twin.HandleMethod(registry{}, "m", embeds, nil), "embeds")
	require.ErrorIs(t, twin.HandleMethod(registry{}, "bad name", f, nil), transport.Invalid)
}

// Over the wire: a panic and an unknown method are answered by the client.
func TestCallsOfABackEnd(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		require.NoError(t, twin.HandleMethod(client, "window", func(_ context.Context, in window) (accepted, error) {
			if in.To == 99 {
				panic("99")
			}
			return accepted{"j"}, nil
		}, &twin.MethodOptions{Limit: 1}))
		require.NoError(t, client.Open(t.Context()))
		for _, c := range [][3]string{
			{"window", `{"from":1,"to":2}`, `202 {"job":"j"}`},
			{"window", `{"to":99}`, `500 {"message":"the method failed"}`},
			{"window", `{"to":1}`, `202 {"job":"j"}`}, // the place is free after a panic
			{"none", `{}`, `404 {"message":"the device has no such method"}`},
		} {
			result, err := hub.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: c[0], Payload: []byte(c[1])})
			require.NoError(t, err)
			require.Equal(t, c[2], fmt.Sprintf("%d %s", result.Status, result.Payload))
		}
	})
}

// Whatever the payload is: the answer is JSON that a hub takes, and the status says whether it ran.
func FuzzHandleMethod(f *testing.F) {
	for _, seed := range []string{``, `null`, `{"from":1,"to":2}`, `{"from":1e9999}`, `{"to":-1}`, "{\"\xff\":1}", `[]`,
		`{"from":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, ran := registry{}, false
		require.NoError(t, twin.HandleMethod(r, "m", func(_ context.Context, in window) (window, error) {
			ran = true
			return in, (&in).Validate()
		}, nil))
		status, answer := r["m"](t.Context(), &device.MethodCall{Name: "m", Body: body})
		require.Equal(t, map[bool]int{true: 200, false: 400}[ran], status)
		require.True(t, json.Valid(answer), "%q", answer)
		require.Less(t, len(answer), 128<<10)
	})
}
