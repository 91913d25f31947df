package agent_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// fault returns an error as transports and services have it.
func fault(k transport.Kind) error { return &transport.Error{Kind: k, Err: errors.New("injected")} }

// service is an agent.Service whose faults are functions.
type service struct {
	mu      sync.Mutex
	offer   *agent.Offer // is offered at every Check
	answer  agent.Answer // without the offer
	queries []agent.Query
	reports []agent.Report // acknowledged ones
	check   func(n int) error
	report  func(r *agent.Report) error
	wake    chan struct{}
}

func (s *service) Wake() <-chan struct{} { return s.wake }

func (s *service) Check(ctx context.Context, q *agent.Query) (*agent.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries = append(s.queries, *q)
	if s.check != nil {
		if err := s.check(len(s.queries)); err != nil {
			return nil, err
		}
	}
	a := s.answer
	a.Offer = s.offer
	return &a, ctx.Err()
}

func (s *service) Report(_ context.Context, r *agent.Report) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.report != nil {
		if err := s.report(r); err != nil {
			return err
		}
	}
	s.reports = append(s.reports, *r)
	return nil
}

// finals returns the final reports.
func (s *service) finals() (finals []agent.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.reports {
		if r.Final() {
			finals = append(finals, r)
		}
	}
	return finals
}

// memory is an agent.Store in RAM.
type memory struct {
	state []byte
	fail  func() error
	saves int
	room  int // most bytes of a state; 0: any number
}

func (m *memory) Load() ([]byte, error) { return m.state, nil }

func (m *memory) Save(state []byte) error {
	m.saves++
	if m.room > 0 && len(state) > m.room {
		return fault(transport.TooLarge)
	}
	if m.fail != nil {
		if err := m.fail(); err != nil {
			return err
		}
	}
	m.state = bytes.Clone(state)
	return nil
}

// files is an agent.Fetcher of files by URL.
type files struct {
	mu      sync.Mutex
	content map[string][]byte
	fetched []string
	ctx     context.Context                        // of the latest Fetch
	fail    func(n int) error                      // of a Fetch
	body    func(n int, r io.Reader) io.ReadCloser // of the n-th Fetch
}

func (f *files) Fetch(ctx context.Context, url string, offset int64) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fetched, f.ctx = append(f.fetched, fmt.Sprint(url, "@", offset)), ctx
	if f.fail != nil {
		if err := f.fail(len(f.fetched)); err != nil {
			return nil, err
		}
	}
	b, ok := f.content[url]
	if !ok {
		return nil, fault(transport.NotFound)
	}
	r := bytes.NewReader(b[min(offset, int64(len(b))):])
	if f.body != nil {
		return f.body(len(f.fetched), r), nil
	}
	return io.NopCloser(r), nil
}

// device is what handlers change. It survives restarts of the program.
type device struct {
	downloads map[string]string // by name of the file
	chunk     int               // bytes of a Read; 0: 4
	installed []string          // contents that run, by step
	backup    []string
	trial     bool // they are on trial
	calls     []string
	// next says what Install, Apply and Cancel return, such as "apply 0".
	next map[string]agent.Next
	// fail returns the error of a call, such as "install 1".
	fail func(call string) error
	// block is closed to end calls that wait, such as "download 0".
	block map[string]chan struct{}
	seen  func(w *agent.Work)
}

func newDevice() *device {
	return &device{downloads: map[string]string{}, installed: []string{"", "", ""}, backup: make([]string, 3),
		next: map[string]agent.Next{}, block: map[string]chan struct{}{}}
}

// handler is an agent.Handler on a device.
type handler struct{ d *device }

func (h handler) begin(ctx context.Context, what string, w *agent.Work) error {
	call := fmt.Sprint(what, " ", w.Index)
	if w.Restarted {
		call += " restarted"
	}
	h.d.calls = append(h.d.calls, call)
	if h.d.seen != nil {
		h.d.seen(w)
	}
	if b := h.d.block[call]; b != nil {
		select {
		case <-b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if h.d.fail != nil {
		return h.d.fail(call)
	}
	return nil
}

func (h handler) Installed(ctx context.Context, w *agent.Work) (bool, error) {
	err := h.begin(ctx, "installed", w)
	have := h.d.installed[w.Index]
	return have != "" && have == w.Step.InstalledCriteria && (err == nil || h.d.trial), err
}

func (h handler) Download(ctx context.Context, w *agent.Work) error {
	if err := h.begin(ctx, "download", w); err != nil {
		return err
	}
	for i := range w.Files {
		f := &w.Files[i]
		r, err := w.Open(ctx, f, strings.NewReader(h.d.downloads[f.Name]))
		if err != nil {
			return err
		}
		for err == nil {
			p := make([]byte, max(4, h.d.chunk))
			var n int
			n, err = r.Read(p)
			h.d.downloads[f.Name] += string(p[:n])
		}
		_ = r.Close()
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

func (h handler) Install(ctx context.Context, w *agent.Work) (agent.Next, error) {
	if err := h.begin(ctx, "install", w); err != nil {
		return 0, err
	}
	return h.d.next[fmt.Sprint("install ", w.Index)], nil
}

func (h handler) Apply(ctx context.Context, w *agent.Work) (agent.Next, error) {
	if err := h.begin(ctx, "apply", w); err != nil {
		return 0, err
	}
	if h.d.installed[w.Index] != w.Step.InstalledCriteria {
		h.d.backup[w.Index], h.d.installed[w.Index] = h.d.installed[w.Index], h.d.downloads[w.Files[0].Name]
	}
	return h.d.next[fmt.Sprint("apply ", w.Index)], nil
}

func (h handler) Cancel(ctx context.Context, w *agent.Work) (agent.Next, error) {
	if err := h.begin(ctx, "cancel", w); err != nil {
		return 0, err
	}
	clear(h.d.downloads)
	if h.d.installed[w.Index] == w.Step.InstalledCriteria {
		h.d.installed[w.Index] = h.d.backup[w.Index]
	}
	return h.d.next[fmt.Sprint("cancel ", w.Index)], nil
}

// rig is a device with its service.
type rig struct {
	t       testing.TB
	service *service
	store   *memory
	files   *files
	device  *device
	options agent.Options
}

func newRig(t testing.TB) *rig {
	r := &rig{t: t, service: &service{}, store: &memory{}, files: &files{content: map[string][]byte{}},
		device: newDevice()}
	r.options = agent.Options{
		Service: r.service, Handlers: map[string]agent.Handler{"": handler{r.device}}, Fetch: r.files, Store: r.store,
		Verify: func(manifest []byte, signature string) error {
			if signature != signed(manifest) {
				return fault(transport.Untrusted)
			}
			return nil
		},
		Properties: agent.Properties{{Name: "manufacturer", Value: "contoso"}, {Name: "model", Value: "tractor"}},
		Spread:     -1, Rand: func() uint64 { return 1 << 63 },
	}
	return r
}

// inRig runs f in fake time.
func inRig(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

// signed stands for the signature over a manifest.
func signed(manifest []byte) string { return fmt.Sprintf("%x", sha256.Sum256(manifest)) }

// offer makes an offer of an update whose steps install the contents.
func (r *rig) offer(workflow, version string, contents ...string) *agent.Offer {
	var steps, list []string
	o := &agent.Offer{WorkflowID: workflow, URLs: map[string]string{}}
	for i, content := range contents {
		id := fmt.Sprint("f", i)
		sum := sha256.Sum256([]byte(content))
		steps = append(steps, fmt.Sprintf(`{"handler":"h","files":[%q],"handlerProperties":{"installedCriteria":%q}}`,
			id, content))
		list = append(list, fmt.Sprintf(`%q:{"fileName":%q,"sizeInBytes":%d,"hashes":{"sha256":%q}}`, id, workflow+id,
			len(content), base64.StdEncoding.EncodeToString(sum[:])))
		o.URLs[id] = "https://files/" + workflow + "/" + id
		r.files.content[o.URLs[id]] = []byte(content)
	}
	o.Manifest = fmt.Appendf(nil, `{"manifestVersion":"5",`+
		`"updateId":{"provider":"Contoso","name":"Tractor","version":%q},`+
		`"compatibility":[{"manufacturer":"Contoso","model":"Tractor"}],"instructions":{"steps":[%s]},"files":{%s}}`,
		version, strings.Join(steps, ","), strings.Join(list, ","))
	o.Signature = signed(o.Manifest)
	return o
}

// offered makes the service offer an update.
func (r *rig) offered(workflow, version string, contents ...string) {
	o := r.offer(workflow, version, contents...)
	r.service.mu.Lock()
	defer r.service.mu.Unlock()
	r.service.offer = o
}

// run runs the agent for d of fake time, and returns what Run returned.
func (r *rig) run(d time.Duration) error {
	a, err := agent.New(&r.options)
	require.NoError(r.t, err)
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	return a.Run(ctx)
}

// runs runs the agent until it no longer asks for restarts.
func (r *rig) runs(d time.Duration) (restarts int) {
	for {
		err := r.run(d)
		if !errors.Is(err, agent.ErrRestart) {
			require.ErrorIs(r.t, err, context.DeadlineExceeded)
			return restarts
		}
		restarts++
	}
}

// final returns the only final report.
func (r *rig) final() agent.Report {
	finals := r.service.finals()
	require.Len(r.t, finals, 1)
	return finals[0]
}

// outcomes returns the outcomes of the steps of a report.
func outcomes(r agent.Report) (names []string) {
	for _, s := range r.Steps {
		names = append(names, s.Outcome.String())
	}
	return names
}

var success = agent.Result{Outcome: agent.OutcomeSucceeded, Code: agent.CodeSuccess}

func TestAnUpdateIsInstalledAndReported(t *testing.T) {
	inRig(t, func(t *testing.T, r *rig) {
		r.offered("wf-1", "1.1", "first image", "second image")
		require.Zero(t, r.runs(3*time.Hour))
		require.Equal(t, []string{"first image", "second image", ""}, r.device.installed)
		require.Equal(t, []string{"installed 0", "download 0", "install 0", "apply 0", "installed 1", "download 1",
			"install 1", "apply 1"}, r.device.calls)
		f := r.final()
		require.Equal(t, agent.Report{WorkflowID: "wf-1", Installed: agent.UpdateID{Provider: "Contoso", Name: "Tractor",
			Version: "1.1"}, Result: success, Steps: []agent.Result{success, success}}, f)
		require.Equal(t, agent.OutcomeInProgress, r.service.reports[0].Result.Outcome)
		require.Nil(t, r.service.reports[0].Steps)
		require.GreaterOrEqual(t, len(r.service.queries), 3)
		require.Equal(t, f.Installed, slices.MaxFunc(r.service.queries, func(a, b agent.Query) int {
			return strings.Compare(a.Installed.Version, b.Installed.Version)
		}).Installed, "the next query tells what is installed")
	})
}
