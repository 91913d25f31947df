package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"strings"

	"github.com/hubline-iot/hubline/update/agent"
)

// shop is a service with one update. It also serves the file and keeps the agent's state.
type shop struct {
	file  string
	state []byte
	done  func()
}

func (s *shop) Check(context.Context, *agent.Query) (*agent.Answer, error) {
	sum := sha256.Sum256([]byte(s.file))
	manifest := `{"manifestVersion":"5","updateId":{"provider":"Contoso","name":"Lamp","version":"2.0"},` +
		`"compatibility":[{"model":"lamp"}],"instructions":{"steps":[{"handler":"contoso/text:1","files":["f"]}]},` +
		`"files":{"f":{"fileName":"light.txt","sizeInBytes":` + fmt.Sprint(len(s.file)) + `,"hashes":{"sha256":"` +
		base64.StdEncoding.EncodeToString(sum[:]) + `"}}}}`
	return &agent.Answer{Offer: &agent.Offer{WorkflowID: "wf-1", Manifest: []byte(manifest), Signature: "signed",
		URLs: map[string]string{"f": "https://shop.example/light.txt"}}}, nil
}

func (s *shop) Report(_ context.Context, r *agent.Report) error {
	fmt.Println("reported:", r.Result.Outcome)
	if r.Final() {
		s.done()
	}
	return nil
}

func (s *shop) Fetch(_ context.Context, _ string, offset int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(s.file[offset:])), nil
}

func (s *shop) Load() ([]byte, error)   { return s.state, nil }
func (s *shop) Save(state []byte) error { s.state = state; return nil }

// lamp is a handler that installs texts.
type lamp struct{ next, now, before string }

func (l *lamp) Installed(context.Context, *agent.Work) (bool, error) { return false, nil }

func (l *lamp) Download(ctx context.Context, w *agent.Work) error {
	r, err := w.Open(ctx, &w.Files[0], nil)
	if err != nil {
		return err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	l.next = string(text)
	return err
}

func (l *lamp) Install(context.Context, *agent.Work) (agent.Next, error) {
	return agent.NextContinue, nil
}

func (l *lamp) Apply(context.Context, *agent.Work) (agent.Next, error) {
	l.before, l.now = l.now, l.next
	return agent.NextContinue, nil
}

func (l *lamp) Cancel(context.Context, *agent.Work) (agent.Next, error) {
	l.now = l.before
	return agent.NextContinue, nil
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	service, handler := &shop{file: "a warmer light", done: cancel}, &lamp{now: "a cold light"}
	a, err := agent.New(&agent.Options{
		Service: service, Fetch: service, Store: service,
		Handlers:   map[string]agent.Handler{"contoso/text:1": handler},
		Verify:     func([]byte, string) error { return nil }, // adusign.Keys.Verify in a real program
		Properties: agent.Properties{{Name: "model", Value: "lamp"}},
		Spread:     -1, // the first check is made at once
	})
	if err != nil {
		panic(err)
	}
	err = a.Run(ctx)
	fmt.Println(err)
	fmt.Println("the lamp has", handler.now)
	// Output:
	// reported: IN_PROGRESS
	// reported: IN_PROGRESS
	// reported: IN_PROGRESS
	// reported: SUCCEEDED
	// context canceled
	// the lamp has a warmer light
}
