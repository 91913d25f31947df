package handler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/flashsim"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update"
	"github.com/hubline-iot/hubline/update/agent"
)

// Sizes of the simulated flash: small, so that every write can be tried.
const (
	writeBlock = 8
	eraseBlock = 256
	slotBlocks = 3
)

// The first byte of an image is its number, the second one says how it behaves.
const (
	works = 'w'
	sick  = 's' // it is never healthy
	crash = 'c' // it does not get as far as the agent
)

// board is a microcontroller, and what it reads of the service.
type board struct {
	t       *testing.T
	flash   *flashsim.Flash
	layout  update.Layout
	state   []byte // the agent's
	image   []byte // that the service offers
	served  []byte // that the file server has
	boots   []byte // the numbers of the images that were started
	reports []string
	off     func() // ends the program
	loses   bool   // the first start of another image than 1 finds no state
	fetch   error  // of each Fetch
	policy  retrypolicy.Policy

	extended []uint32 // of the latest report
}

func newImage(number, behaviour byte) []byte {
	b := make([]byte, slotBlocks*eraseBlock-5)
	random := rand.New(rand.NewPCG(uint64(number), 0))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[0], b[1] = number, behaviour
	return b
}

func newBoard(t *testing.T, image []byte) *board {
	f := flashsim.New((2+2*slotBlocks)*eraseBlock, writeBlock, eraseBlock)
	b := &board{t: t, image: image, served: image, flash: f, layout: update.Layout{
		Flash: f, Slots: [2]update.Slot{{First: 2, Blocks: slotBlocks}, {First: 2 + slotBlocks, Blocks: slotBlocks}}}}
	first := newImage(1, works)
	_, err := f.WriteAt(append(bytes.Clone(first), 0xff, 0xff, 0xff, 0xff, 0xff), 2*eraseBlock)
	require.NoError(t, err)
	require.NoError(t, update.Format(&b.layout,
		update.Image{Version: 1, Size: int64(len(first)), SHA256: sha256.Sum256(first)}))
	return b
}

// The board is the agent's Service, Fetcher and Store.

func (b *board) Check(context.Context, *agent.Query) (*agent.Answer, error) {
	sum := sha256.Sum256(b.image)
	manifest := fmt.Appendf(nil, `{"manifestVersion":"5",`+
		`"updateId":{"provider":"Contoso","name":"Roof","version":"%d.0"},`+
		`"compatibility":[{"model":"roof"}],"instructions":{"steps":[{"handler":"contoso/slots:1","files":["f1"],`+
		`"handlerProperties":{"installedCriteria":"%d"}}]},`+
		`"files":{"f1":{"fileName":"image","sizeInBytes":%d,"hashes":{"sha256":"%s"}}}}`,
		b.image[0], b.image[0], len(b.image), base64.StdEncoding.EncodeToString(sum[:]))
	return &agent.Answer{Offer: &agent.Offer{WorkflowID: fmt.Sprint("to ", b.image[0]), Manifest: manifest,
		URLs: map[string]string{"f1": "image"}}}, nil
}

func (b *board) Report(_ context.Context, r *agent.Report) error {
	if r.Final() {
		b.reports = append(b.reports, fmt.Sprint(r.Result.Outcome, " ", r.Installed.Version, " ", r.Result.Details))
		b.extended = r.Result.Extended
	}
	return nil
}

func (b *board) Fetch(_ context.Context, _ string, offset int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(b.served[offset:])), b.fetch
}

func (b *board) Load() ([]byte, error) { return b.state, nil }

var errOff = &transport.Error{Kind: transport.Unknown, Err: errors.New("the power is off")}

func (b *board) Save(state []byte) error {
	if b.flash.Off() {
		b.off()
		return errOff
	}
	b.state = bytes.Clone(state)
	return nil
}

// live starts the board until there is a final report.
func (b *board) live() {
	b.t.Helper()
	for range 30 {
		slot, err := update.Boot(&b.layout, make([]byte, 64))
		if b.flash.Off() {
			b.flash.Restore()
			continue
		}
		require.NoError(b.t, err)
		head := make([]byte, 2)
		_, err = b.flash.ReadAt(head, b.layout.Slots[slot].First*eraseBlock)
		require.NoError(b.t, err)
		b.boots = append(b.boots, head[0])
		if b.loses && head[0] != 1 {
			b.state, b.loses = nil, false
		}
		if head[1] != crash {
			b.program(head[0], head[1])
		}
		if b.flash.Off() {
			b.flash.Restore()
			continue
		}
		if len(b.reports) > 0 {
			return
		}
	}
	require.Fail(b.t, "the update does not end")
}

// program is the firmware. It returns for a reset.
func (b *board) program(number, behaviour byte) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	b.off = cancel
	u, err := update.Open(&update.Options{Layout: b.layout, Buffer: 64, Version: uint32(number)})
	require.NoError(b.t, err)
	slots := &Slots{Updater: u, Healthy: func(ctx context.Context) error {
		if behaviour == sick {
			<-ctx.Done()
			return errors.New("no connection")
		}
		return nil
	}}
	a, err := agent.New(&agent.Options{
		Service: b, Fetch: b, Store: b, Policy: b.policy, Handlers: map[string]agent.Handler{"contoso/slots:1": slots},
		Verify:     func([]byte, string) error { return nil },
		Properties: agent.Properties{{Name: "model", Value: "roof"}},
		Installed: func() agent.UpdateID {
			return agent.UpdateID{Provider: "Contoso", Name: "Roof", Version: fmt.Sprintf("%d.0", number)}
		},
		OnStatus: func(s agent.Status) {
			if s.Phase == agent.PhaseIdle && s.Latest.Outcome != agent.OutcomeInProgress && s.Unsent == 0 {
				cancel()
			}
		},
	})
	require.NoError(b.t, err)
	err = a.Run(ctx)
	require.True(b.t, errors.Is(err, agent.ErrRestart) || ctx.Err() != nil, "%v", err)
}

// lives gives a board an update and cuts its power at each write and erase. ended checks each life.
func lives(t *testing.T, image []byte, ended func(b *board, cut int)) {
	t.Helper()
	live := func(cut int) *board {
		var b *board
		testkit.Bubble(t, func(t *testing.T) {
			b = newBoard(t, image)
			if cut > 0 {
				b.flash.CutAt(cut, flashsim.Tears[cut%len(flashsim.Tears)], uint64(cut))
			}
			b.live()
			ended(b, cut)
		})
		return b
	}
	whole := live(0)
	operations := whole.flash.Operations() - newBoard(t, image).flash.Operations()
	t.Logf("images %v are started; %d writes and erases, each cut", whole.boots, operations)
	require.Greater(t, operations, 100)
	for cut := 1; cut <= operations; cut++ {
		live(cut)
	}
}

func TestAnImageIsInstalledThroughAnyPowerCut(t *testing.T) {
	lives(t, newImage(2, works), func(b *board, cut int) {
		require.Equal(b.t, []string{"SUCCEEDED 2.0 "}, b.reports, "cut %d", cut)
		require.Equal(b.t, byte(2), b.boots[len(b.boots)-1])
	})
}

// An image that is not healthy, or does not start, is taken back: by itself, or by the boot loader.
func TestAnImageThatDoesNotWorkIsTakenBackThroughAnyPowerCut(t *testing.T) {
	for _, behaviour := range []byte{sick, crash} {
		t.Run(string(behaviour), func(t *testing.T) {
			lives(t, newImage(2, behaviour), func(b *board, cut int) {
				require.Len(b.t, b.reports, 1, "cut %d", cut)
				require.Contains(b.t, b.reports[0], "FAILED 1.0 ", "cut %d", cut)
				require.Equal(b.t, byte(1), b.boots[len(b.boots)-1])
			})
		})
	}
}

// The firmware on trial cannot read the state of the agent before it.
func TestAnImageOnTrialIsTakenBackByAnAgentThatHasLostItsState(t *testing.T) {
	for behaviour, want := range map[byte]byte{works: 2, sick: 1} {
		testkit.Bubble(t, func(t *testing.T) {
			b := newBoard(t, newImage(2, behaviour))
			b.loses = true
			b.live()
			require.Len(t, b.reports, 1)
			require.Equal(t, want, b.boots[len(b.boots)-1])
		})
	}
}

func TestAnImageWithAnotherHashIsReportedAsSuch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := newBoard(t, newImage(2, works))
		b.served = bytes.Clone(b.image)
		b.served[9]++
		b.live()
		require.Contains(t, b.reports[0], "file: its SHA-256 is not that of the manifest")
		require.Equal(t, []uint32{agent.AreaHash.Code(0)}, b.extended)
	})
}

func TestThePolicyOfTheAgentEndsADownload(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := newBoard(t, newImage(2, works))
		b.fetch = &transport.Error{Kind: transport.Network, Err: errors.New("no route")}
		b.policy = retrypolicy.NoRetry{}
		b.live()
		require.Len(t, b.reports, 1)
		require.Contains(t, b.reports[0], "FAILED 1.0 ")
	})
}

// step returns what the agent asks of a handler about an image.
func step(image []byte) *agent.Work {
	return &agent.Work{Step: agent.Step{InstalledCriteria: fmt.Sprint(image[0])},
		Files: []agent.File{{Size: int64(len(image)), SHA256: sha256.Sum256(image)}}}
}

// install does what Download and Install do.
func install(t *testing.T, h *Slots, image []byte) {
	t.Helper()
	w := step(image)
	m, _, err := h.look(w)
	require.NoError(t, err)
	require.NoError(t, h.Updater.Stage(t.Context(), m, func(context.Context, io.Reader) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(image)), nil
	}))
	_, err = h.Install(t.Context(), w)
	require.NoError(t, err)
}

// What is cancelled before the restart is not started, and the same image can come again. What runs
// is rejected, and what is confirmed stays.
func TestCancelUndoesWhatCanBeUndone(t *testing.T) {
	image := newImage(2, works)
	b := newBoard(t, image)
	open := func() *Slots {
		u, err := update.Open(&update.Options{Layout: b.layout, Buffer: 64, Version: uint32(image[0])})
		require.NoError(t, err)
		return &Slots{Updater: u, Healthy: func(context.Context) error { return nil }}
	}
	w := step(image)
	h := open()
	for range 2 {
		install(t, h, image)
		next, err := h.Cancel(t.Context(), w)
		require.NoError(t, err)
		require.Equal(t, agent.NextContinue, next)
		slot, err := update.Boot(&b.layout, make([]byte, 64))
		require.NoError(t, err)
		require.Zero(t, slot)
	}
	install(t, h, image)
	_, err := update.Boot(&b.layout, make([]byte, 64))
	require.NoError(t, err)
	next, err := open().Cancel(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, agent.NextRestart, next)
	_, err = open().Install(t.Context(), w)
	require.ErrorIs(t, err, errBack)
	_, err = open().Apply(t.Context(), w)
	require.ErrorIs(t, err, errBack)

	image = newImage(3, works)
	w = step(image)
	install(t, open(), image)
	_, err = update.Boot(&b.layout, make([]byte, 64))
	require.NoError(t, err)
	h = open()
	next, err = h.Apply(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, agent.NextContinue, next, "it runs")
	require.Equal(t, update.OutcomeUpdated, h.Updater.Status().Outcome)
	_, err = h.Cancel(t.Context(), w)
	require.ErrorIs(t, err, errOnly)
}

// The write that counts a start of the new image fails, and the boot loader starts the old one.
func TestTheOldImageDoesNotConfirmTheNewOne(t *testing.T) {
	image := newImage(2, works)
	b, w := newBoard(t, image), step(image)
	open := func(version uint32) *Slots {
		u, err := update.Open(&update.Options{Layout: b.layout, Buffer: 64, Version: version})
		require.NoError(t, err)
		return &Slots{Updater: u, Healthy: func(context.Context) error { return nil }}
	}
	install(t, open(1), image)
	_, err := update.Boot(&b.layout, make([]byte, 64))
	require.NoError(t, err)
	for version, text := range map[uint32]string{0: "Options.Version is 0", 1: "does not have Options.Version"} {
		h := open(version)
		_, err = h.Installed(t.Context(), w)
		require.ErrorContains(t, err, text)
		_, err = h.Apply(t.Context(), w)
		require.ErrorContains(t, err, text)
		require.Equal(t, update.PhaseTrying, h.Updater.Status().Phase)
	}
	next, err := open(0).Cancel(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, agent.NextRestart, next)
}

func TestAStepThatIsNoImageIsRefused(t *testing.T) {
	for text, change := range map[string]func(h *Slots, w *agent.Work){
		"Slots.Updater":     func(h *Slots, _ *agent.Work) { h.Updater = nil },
		"Slots.Healthy":     func(h *Slots, _ *agent.Work) { h.Healthy = nil },
		"installedCriteria": func(_ *Slots, w *agent.Work) { w.Step.InstalledCriteria = "2.0" },
		"from 1 on":         func(_ *Slots, w *agent.Work) { w.Step.InstalledCriteria = "0" },
		"one file":          func(_ *Slots, w *agent.Work) { w.Files = nil },
	} {
		b, w := newBoard(t, nil), step(newImage(2, works))
		u, err := update.Open(&update.Options{Layout: b.layout})
		require.NoError(t, err)
		h := &Slots{Updater: u, Healthy: func(context.Context) error { return nil }}
		change(h, w)
		_, installed := h.Installed(t.Context(), w)
		_, install := h.Install(t.Context(), w)
		_, apply := h.Apply(t.Context(), w)
		_, cancel := h.Cancel(t.Context(), w)
		for _, err := range []error{installed, h.Download(t.Context(), w), install, apply, cancel} {
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, text)
		}
	}
}
