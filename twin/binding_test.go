package twin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// level has no text above 9.
type level int

func (l level) MarshalJSON() ([]byte, error) {
	if l > 9 {
		return nil, errors.New("a level has one digit")
	}
	return json.Marshal(int(l))
}

func TestAValueThatHasNoJSONIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		type options struct {
			Level level `json:"level"`
		}
		client := connect(t, hub, dev.ConnectionString())
		var seen errorsSeen
		b, err := twin.Bind(client, &twin.Options[options]{OnError: seen.add,
			Apply: func(context.Context, twin.Change[options]) error { return nil }})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		_, err = hub.PatchDesired("dev-1", `{"level":10}`)
		require.NoError(t, err)
		settle()
		require.JSONEq(t, `{"level":{"ac":200,"av":2,"ad":""}}`, reported(t, hub, "dev-1"), "without the value")
		errs := seen.take()
		require.Len(t, errs, 1)
		require.Contains(t, errs[0], "field level: ")
		require.Contains(t, errs[0], "a level has one digit")
	})
}

// A report that the hub does not answer delays no later configuration.
func TestAConfigurationDoesNotWaitForAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		silence := hub.Inject(fault.Fault{Kind: fault.SwallowTwin, Operation: hubdata.TwinPatch, Times: -1})
		for interval := 1; interval < 4; interval++ {
			_, err = hub.PatchDesired("dev-1", fmt.Sprintf(`{"interval":%d}`, interval))
			require.NoError(t, err)
			hub.Drop("dev-1") // the next connection reads the twin
			time.Sleep(10 * time.Second)
			require.Equal(t, interval, b.Value().Interval)
		}
		silence.Remove()
		time.Sleep(10 * time.Minute)
		require.Contains(t, reported(t, hub, "dev-1"), `"interval":{"ac":200,"ad":"","av":4,"value":3}`)
	})
}

func TestDesiredPropertiesBecomeAStruct(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		var changes []twin.Change[settings]
		var seen errorsSeen
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual(), Check: check, OnError: seen.add,
			Apply: func(_ context.Context, c twin.Change[settings]) error { changes = append(changes, c); return nil }})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		require.JSONEq(t, `{"interval":`+answered("60", 203, 1, "by default")+`,"level":`+
			answered(`"info"`, 203, 1, "by default")+`,"window":`+answered(`{"from":1,"to":9}`, 203, 1, "by default")+`}`,
			reported(t, hub, "dev-1"))
		require.Empty(t, changes, "the default is in force before")

		_, err = hub.PatchDesired("dev-1", `{"interval":30,"window":{"to":5},"fan":true}`)
		require.NoError(t, err)
		require.JSONEq(t, `{"interval":`+answered("30", 200, 2, "")+`,"level":`+answered(`"info"`, 203, 1, "by default")+
			`,"window":`+answered(`{"from":1,"to":5}`, 200, 2, "")+`}`, reported(t, hub, "dev-1"))
		now := settings{30, "info", window{1, 5}}
		require.Equal(t, now, b.Value())
		require.EqualValues(t, 2, b.Version())
		require.Equal(t, []twin.Change[settings]{
			{Old: usual(), New: now, Fields: []string{"interval", "window"}, Version: 2},
		}, changes)
		require.Equal(t, []string{"field fan: there is no such field"}, seen.take())

		_, err = hub.PatchDesired("dev-1", `{"interval":null,"window":{"from":2}}`)
		require.NoError(t, err)
		settle()
		require.Equal(t, settings{60, "info", window{2, 5}}, b.Value(), "a patch changes a part of an object")
	})
}

func TestAnInvalidValueKeepsTheOneInForce(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		var seen errorsSeen
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual(), Check: check, OnError: seen.add})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		for i, c := range []struct {
			patch string
			want  settings
			part  string // of the reported properties
			seen  string
		}{
			{`{"interval":30}`, settings{30, "info", window{1, 9}}, `"ac":200,"ad":"","av":2,"value":30`, ""},
			{`{"interval":"fast","level":"debug"}`, settings{30, "debug", window{1, 9}},
				`"ac":400,"ad":"field interval: want a whole number in its range, got a string","av":3,"value":30`,
				"field interval: want a whole number in its range, got a string"},
			{`{"interval":0}`, settings{30, "debug", window{1, 9}},
				`"ac":400,"ad":"field interval: give 1 or more seconds","av":4,"value":30`,
				"field interval: give 1 or more seconds"},
			{`{"interval":20,"window":{"from":10}}`, settings{30, "debug", window{1, 9}}, // both, as the error names none
				`"ac":400,"ad":"the window ends before it begins","av":5,"value":30`,
				"the window ends before it begins\nthe window ends before it begins"},
			{`{"window":{"to":"x"}}`, settings{20, "debug", window{1, 9}},
				`"ac":400,"ad":"field window.to: want a whole number in its range, got a string","av":6`,
				"field window.to: want a whole number in its range, got a string"},
			{`{"window":{"to":12}}`, settings{20, "debug", window{10, 12}},
				`"window":{"ac":200,"ad":"","av":7,"value":{"from":10,"to":12}}`, ""},
		} {
			_, err = hub.PatchDesired("dev-1", c.patch)
			require.NoError(t, err)
			require.Contains(t, reported(t, hub, "dev-1"), c.part, "%d", i)
			require.Equal(t, c.want, b.Value(), "%s", c.patch)
			require.Equal(t, c.seen, strings.Join(seen.take(), "\n"), c.patch)
		}
	})
}

// After an outage the latest values are in force, and a restarted program sends only differences.
func TestTheTwinOutlivesConnectionsAndPrograms(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		require.NoError(t, client.Open(t.Context()))
		settle()
		_, err = hub.PatchDesired("dev-1", `{"interval":30}`)
		require.NoError(t, err)
		settle()
		require.Equal(t, 30, b.Value().Interval)
		require.Len(t, patches(hub, "dev-1"), 2)

		outage := hub.Inject(fault.Fault{Kind: fault.Absent, Times: -1})
		settle()
		for _, level := range []string{"debug", "warn", "error"} {
			_, err = hub.PatchDesired("dev-1", `{"level":"`+level+`","interval":null}`)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute)
		require.Equal(t, 30, b.Value().Interval)
		outage.Remove()
		time.Sleep(time.Minute)
		require.Equal(t, settings{60, "error", window{1, 9}}, b.Value())
		all := patches(hub, "dev-1")
		require.Len(t, all, 3)
		require.JSONEq(t, `{"interval":{"value":60,"ac":203,"av":5,"ad":"by default"},
			"level":{"value":"error","ac":200,"av":5,"ad":""}}`, all[2], "the window did not change")
		b.Close()
		require.NoError(t, client.Close())

		client = connect(t, hub, dev.ConnectionString())
		b, err = twin.Bind(client, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		settle()
		require.Equal(t, settings{60, "error", window{1, 9}}, b.Value())
		all = patches(hub, "dev-1")
		require.Len(t, all, 4)
		require.JSONEq(t, `{"window":{"av":5}}`, all[3], "the new program has evaluated version 5 for the window, too")
	})
}

func TestPropertiesThatWereReplacedAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		defer b.Close()
		_, err = hub.PatchDesired("dev-1", `{"interval":30,"level":"debug"}`)
		require.NoError(t, err)
		require.NoError(t, client.Open(t.Context()))
		settle()
		settle()
		require.Equal(t, 30, b.Value().Interval)
		_, err = hub.SetDesired("dev-1", `{"level":"warn"}`)
		require.NoError(t, err)
		settle()
		require.NoError(t, client.Reconnect()) // a hub does not name what was left out before
		time.Sleep(time.Minute)
		require.Equal(t, settings{60, "warn", window{1, 9}}, b.Value())
	})
}

func TestATwinOfAModule(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, _ hubdata.Device) {
		module, err := hub.AddModule("dev-1", "mod-1")
		require.NoError(t, err)
		client := connect(t, hub, module.ConnectionString())
		b, err := twin.Bind(client, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		defer b.Close()
		require.NoError(t, client.Open(t.Context()))
		settle()
		_, err = hub.PatchDesired("dev-1/mod-1", `{"interval":5}`)
		require.NoError(t, err)
		require.Contains(t, reported(t, hub, "dev-1/mod-1"), `"value":5`)
		require.Equal(t, 5, b.Value().Interval)
		require.Equal(t, "{}", strings.ReplaceAll(reported(t, hub, "dev-1"), `"$version":1`, ""))
	})
}

func TestAChangeThatCannotBeApplied(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		why := errors.New("no such level")
		var applied []string
		b, err := twin.Bind(f, &twin.Options[settings]{Default: usual(), Apply: func(_ context.Context,
			c twin.Change[settings]) error {
			applied = append(applied, strings.Join(c.Fields, "+"))
			switch {
			case c.New.Level == "bad":
				return &twin.FieldError{Field: "level", Err: why}
			case c.New.Level == "panic":
				panic("out of order")
			case c.New.Level == "none":
				return (*os.PathError)(nil) // its methods panic
			case c.New.Interval == 13:
				return errors.New("the timer is broken")
			}
			return nil
		}})
		require.NoError(t, err)
		defer b.Close()
		status := func(name string) string {
			synctest.Wait()
			p, _ := f.doc[name].(map[string]any)
			return string(encode([]any{p["ac"], p["ad"]}))
		}
		f.deliver(t.Context(), 1, true, `{}`)
		f.deliver(t.Context(), 2, false, `{"level":"bad","interval":5}`)
		require.Equal(t, usual(), b.Value(), "nothing of the change took effect")
		require.Equal(t, `[400,"field level: no such level"]`, status("level"))
		require.Equal(t, `[500,"nothing of the change took effect, because another property was refused"]`,
			status("interval"))
		f.deliver(t.Context(), 3, false, `{"level":null}`)
		require.Equal(t, 5, b.Value().Interval, "tried again with the next change")
		require.Equal(t, `[200,""]`, status("interval"))
		f.deliver(t.Context(), 4, false, `{"interval":13}`)
		require.Equal(t, `[500,"the timer is broken"]`, status("interval"))
		f.deliver(t.Context(), 5, false, `{"interval":6,"level":"panic"}`)
		require.Equal(t, `[500,"callback twin.Options.Apply panicked: out of order"]`, status("level"))
		f.deliver(t.Context(), 6, false, `{"interval":6,"level":"none"}`)
		require.Equal(t, `[500,"an error whose Error method panics"]`, status("level"))
		require.Equal(t, 5, b.Value().Interval)
		require.Equal(t, []string{"interval+level", "interval", "interval", "interval+level", "interval+level"}, applied)
	})
}

// Two values that contradict each other: the one that Check names is refused, the rest is in force.
func TestCheckSeesTheRest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		b, err := twin.Bind(f, &twin.Options[settings]{Default: usual(), Check: func(s settings) error {
			if s.Level == "debug" && s.Interval < 10 {
				return &twin.FieldError{Field: "level", Err: errors.New("not with short intervals")}
			}
			if s.Interval == 1 {
				return errors.Join(&twin.FieldError{Field: "interval", Err: errors.New("no")}, errors.New("other"))
			}
			return nil
		}})
		require.NoError(t, err)
		defer b.Close()
		f.deliver(t.Context(), 2, true, `{"level":"debug","interval":5}`)
		require.Equal(t, settings{5, "info", window{1, 9}}, b.Value())
		f.deliver(t.Context(), 3, false, `{"interval":20}`)
		require.Equal(t, settings{20, "debug", window{1, 9}}, b.Value(), "the refused value is possible with another one")
		f.deliver(t.Context(), 4, false, `{"interval":1}`)
		require.Equal(t, settings{20, "info", window{1, 9}}.Interval, b.Value().Interval)
	})
}

func TestAFailedAnswerIsSentAgain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		var seen errorsSeen
		b, err := twin.Bind(f, &twin.Options[settings]{Default: usual(), OnError: seen.add})
		require.NoError(t, err)
		defer b.Close()
		busy := &transport.Error{Kind: transport.Timeout, Op: transport.OpTwinPatch}
		f.set(func(f *fake) { f.fail = []error{nil, busy, busy} })
		f.deliver(t.Context(), 1, true, `{}`)
		synctest.Wait()
		require.Empty(t, f.sent())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Len(t, f.sent(), 1)
		require.Len(t, seen.take(), 2)

		// Newer answers go at once, in place of the failed ones.
		f.set(func(f *fake) { f.fail = []error{busy} })
		f.deliver(t.Context(), 2, false, `{"interval":5}`)
		synctest.Wait()
		require.Empty(t, f.sent())
		f.deliver(t.Context(), 3, false, `{"interval":6}`)
		synctest.Wait()
		require.Equal(t, []string{`{"interval":{"ac":200,"ad":"","av":3,"value":6}}`}, f.sent())

		// What the hub never takes is not repeated.
		f.set(func(f *fake) { f.fail = []error{&transport.Error{Kind: transport.TooLarge}} })
		f.deliver(t.Context(), 4, false, `{"level":"x"}`)
		time.Sleep(time.Hour)
		require.Empty(t, f.sent())
	})
}

func TestCloseEndsAnswersAndTheHandler(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		b, err := twin.Bind(f, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		f.set(func(f *fake) { f.block = true })
		f.deliver(t.Context(), 1, true, `{"interval":5}`)
		synctest.Wait()
		require.Equal(t, 1, b.Value().Window.From)
		before := testkit.Goroutines()
		b.Close()
		synctest.Wait()
		require.Less(t, testkit.Goroutines(), before)
		require.Nil(t, f.handle)
		require.Equal(t, 5, b.Value().Interval)
		b.Close()
	})
}

// The end of the client's context, as in Client.Close, ends answers that wait to be sent again.
func TestTheEndOfTheClientEndsAnswers(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		_, err := twin.Bind(f, &twin.Options[settings]{Default: usual()})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		f.set(func(f *fake) { f.fail = slices.Repeat([]error{errors.New("down")}, 3) })
		f.deliver(ctx, 1, true, `{}`)
		synctest.Wait()
		before := testkit.Goroutines()
		cancel()
		synctest.Wait()
		require.Equal(t, before-1, testkit.Goroutines())
		f.deliver(ctx, 2, true, `{"interval":5}`)
	})
}

func TestDesiredPropertiesAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		var seen errorsSeen
		b, err := twin.Bind(f, &twin.Options[struct {
			Labels map[string]string `json:"labels"`
		}]{OnError: seen.add})
		require.NoError(t, err)
		defer b.Close()
		f.deliver(t.Context(), 1, true, `{"labels":{"a":"b"}}`)
		for i := range 30 { // a hub that adds and adds
			label := `"k` + string(rune('A'+i)) + `":"` + strings.Repeat("x", 16<<10) + `"`
			f.deliver(t.Context(), int64(i+2), false, `{"labels":{`+label+`}}`)
		}
		total := 0
		for k, v := range b.Value().Labels {
			total += len(k) + len(v)
		}
		require.Less(t, total, 256<<10)
		require.Equal(t, "b", b.Value().Labels["a"])
		require.Contains(t, strings.Join(seen.take(), "\n"), "more than 256 KiB are desired")

		many := map[string]int{}
		for i := range 500 {
			many["u"+strings.Repeat("x", i)] = i
		}
		f.deliver(t.Context(), 40, true, string(encode(many)))
		require.Len(t, seen.take(), 10, "unknown properties")
		for _, bad := range []string{`[]`, `null`, `{`, ``} {
			f.deliver(t.Context(), 41, true, bad)
			require.Len(t, seen.take(), 1, bad)
		}
	})
}

func TestMistakesAreErrorsOfBind(t *testing.T) {
	f := newFake()
	_, err := twin.Bind[int](f, nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "int is not a struct")
	_, err = twin.Bind[struct {
		A int `json:"a b"`
	}](f, nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, `property's name "a b"`)
	_, err = twin.Bind[struct{ C chan int }](f, nil)
	require.ErrorIs(t, err, transport.Invalid)
	_, err = twin.Bind(f, &twin.Options[settings]{Check: check})
	require.ErrorContains(t, err, "the default does not pass Check: field interval: give 1 or more seconds")
	_, err = twin.Bind(f, &twin.Options[settings]{Default: usual(), Start: &settings{}, Check: check})
	require.ErrorContains(t, err, "the value at the start does not pass Check")
	_, err = twin.NewReporter[[]int](f)
	require.ErrorIs(t, err, transport.Invalid)
	require.Nil(t, f.handle, "no handler is registered")
}

// A value of the last run is in force until the hub's is known.
func TestTheValueAtTheStart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := newFake()
		b, err := twin.Bind(f, &twin.Options[settings]{Default: usual(), Start: &settings{7, "debug", window{2, 3}}})
		require.NoError(t, err)
		defer b.Close()
		require.Equal(t, 7, b.Value().Interval)
		f.deliver(t.Context(), 3, true, `{"interval":"x","level":"debug"}`)
		require.Equal(t, settings{7, "debug", window{1, 9}}, b.Value(), "an invalid value keeps the one in force")
	})
}

// Whatever a hub sends: the value in force passes Check, and the hub ends with the answers for it.
func FuzzDesired(f *testing.F) {
	f.Add([]byte(`{"interval":5,"window":{"from":3}}`), []byte(`{"interval":"x","window":{"to":1},"level":null}`))
	f.Add([]byte(`{"window":[],"level":{"a":null}}`), []byte(`{"window":null,"$version":3,"":1}`))
	f.Add([]byte(`{"window":{"__t":"c","from":1}}`), []byte(`{"interval":1e999,"level":"\ud800"}`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		testkit.Bubble(t, func(t *testing.T) {
			hub := newFake()
			b, err := twin.Bind(hub, &twin.Options[settings]{Default: usual(), Check: check})
			require.NoError(t, err)
			for i, text := range [][]byte{first, second, first} {
				hub.deliver(t.Context(), int64(i+1), i == 0, string(text))
				synctest.Wait()
				require.NoError(t, check(b.Value()))
				if len(hub.doc) == 0 {
					continue // nothing was JSON so far
				}
				inForce := map[string]any{}
				for name, p := range hub.doc {
					inForce[name] = p.(map[string]any)["value"]
				}
				require.JSONEq(t, string(encode(b.Value())), string(encode(inForce)))
			}
			b.Close()
		})
	})
}

// A field that is no property keeps its value of Default, for Check, too.
func TestAFieldThatIsNoPropertyStays(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		type limited struct {
			Interval int `json:"interval"`
			Most     int `json:"-"`
			unit     string
		}
		f := newFake()
		b, err := twin.Bind(f, &twin.Options[limited]{Default: limited{1, 9, "s"}, Check: func(v limited) error {
			if v.Interval > v.Most || v.unit == "" {
				return errors.New("too large")
			}
			return nil
		}})
		require.NoError(t, err)
		defer b.Close()
		f.deliver(t.Context(), 2, true, `{"interval":5}`)
		settle()
		require.Equal(t, limited{5, 9, "s"}, b.Value())
	})
}
