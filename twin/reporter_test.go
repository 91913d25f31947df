package twin_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

type state struct {
	Firmware string         `json:"firmware"`
	Battery  *int           `json:"battery,omitempty"`
	Cells    map[string]int `json:"cells,omitempty"`
	Modes    []string       `json:"modes,omitempty"`
}

func TestOnlyDifferencesAreReported(t *testing.T) {
	bubble(t, func(t *testing.T, hub *testbroker.Hub, dev hubdata.Device) {
		client := connect(t, hub, dev.ConnectionString())
		require.NoError(t, client.Open(t.Context()))
		_, err := client.PatchReported(t.Context(), []byte(`{"firmware":"0.9","other":1}`))
		require.NoError(t, err)
		r, err := twin.NewReporter[state](client)
		require.NoError(t, err)
		half := 50
		want := []string{`{"firmware":"0.9","other":1}`}
		for _, c := range []struct {
			state state
			patch string
		}{
			{state{Firmware: "1.0", Battery: &half, Cells: map[string]int{"a": 1, "b": 2}},
				`{"battery":50,"cells":{"a":1,"b":2},"firmware":"1.0"}`},
			{state{Firmware: "1.0", Battery: &half, Cells: map[string]int{"a": 1, "b": 2}}, ""},
			{state{Firmware: "1.0", Cells: map[string]int{"a": 1, "b": 3}}, `{"battery":null,"cells":{"b":3}}`},
			{state{Firmware: "1.0", Cells: map[string]int{"b": 3}, Modes: []string{"x"}},
				`{"cells":{"a":null},"modes":["x"]}`},
			{state{Firmware: "1.0", Modes: []string{"x", "y"}}, `{"cells":null,"modes":["x","y"]}`},
		} {
			require.NoError(t, r.Report(t.Context(), c.state))
			if c.patch != "" {
				want = append(want, c.patch)
			}
			require.Equal(t, want, patches(hub, "dev-1"))
		}
		require.JSONEq(t, `{"firmware":"1.0","modes":["x","y"],"other":1}`, reported(t, hub, "dev-1"))
	})
}

// Another writer changed a property of ours: the version shows it, and the report is completed.
func TestAnotherWriterIsNoticed(t *testing.T) {
	f := newFake()
	r, err := twin.NewReporter[state](f)
	require.NoError(t, err)
	require.NoError(t, r.Report(t.Context(), state{Firmware: "1.0", Modes: []string{"x"}}))
	require.Equal(t, 1, f.reads)
	f.set(func(f *fake) { f.doc["firmware"], f.version = "stolen", f.version+1 })
	require.NoError(t, r.Report(t.Context(), state{Firmware: "1.0", Modes: []string{"y"}}))
	require.Equal(t, "1.0", f.doc["firmware"])
	require.Equal(t, 2, f.reads)
	require.Equal(t, []string{`{"firmware":"1.0","modes":["x"]}`, `{"modes":["y"]}`, `{"firmware":"1.0"}`}, f.sent())
}

// What the hub did not acknowledge may be there or not, so the twin is read.
func TestAnErrorMakesTheNextReportReadTheTwin(t *testing.T) {
	f := newFake()
	r, err := twin.NewReporter[state](f)
	require.NoError(t, err)
	lost := &transport.Error{Kind: transport.Network, Err: transport.ErrOutcomeUnknown}
	f.fail = []error{nil, lost}
	require.ErrorIs(t, r.Report(t.Context(), state{Firmware: "1.0"}), transport.ErrOutcomeUnknown)
	f.set(func(f *fake) { f.doc["firmware"], f.version = "1.0", f.version+1 }) // it was there
	require.NoError(t, r.Report(t.Context(), state{Firmware: "1.0"}))
	require.Empty(t, f.sent())
	require.Equal(t, 2, f.reads)
	r.Forget()
	require.NoError(t, r.Report(t.Context(), state{Firmware: "1.0"}))
	require.Equal(t, 3, f.reads)
}

func TestReportsTakeTurns(t *testing.T) {
	f := newFake()
	r, err := twin.NewReporter[state](f)
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := r.Report(t.Context(), state{Firmware: string(rune('a' + i))}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, f.reads)
	require.Len(t, f.sent(), 20)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.set(func(f *fake) { f.block = true })
	require.ErrorIs(t, r.Report(ctx, state{Firmware: "z"}), transport.Cancelled)
}

// own has a MarshalJSON that hides its fields.
type own struct {
	Text string `json:"text"`
}

func (o own) MarshalJSON() ([]byte, error) {
	if o.Text == "" {
		return nil, errors.New("empty")
	}
	return []byte(o.Text), nil
}

func TestValuesThatCannotBeReported(t *testing.T) {
	f := newFake()
	r, err := twin.NewReporter[own](f)
	require.NoError(t, err)
	for _, text := range []string{"", "3", `{"a":1}`} {
		require.ErrorIs(t, r.Report(t.Context(), own{text}), transport.Invalid, text)
	}
	require.Zero(t, f.reads)
	require.NoError(t, r.Report(t.Context(), own{`{"text":"x"}`}))
}
