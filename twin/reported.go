package twin

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/hubline-iot/hubline/transport"
)

// reported knows the properties that the hub has acknowledged.
type reported struct {
	client Client
	names  []string // properties of others are not touched
	turn   chan struct{}
	stale  atomic.Bool // acknowledged may be of another twin

	// These belong to the holder of turn.
	acknowledged map[string]any // nil: unknown, read the twin
	version      int64
}

func newReported(c Client, names []string) *reported {
	r := &reported{client: c, names: names, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// take waits for the turn.
func (r *reported) take(ctx context.Context) error {
	select {
	case <-r.turn:
		return nil
	case <-ctx.Done():
		return &transport.Error{Kind: transport.Cancelled, Op: transport.OpTwinPatch, Err: context.Cause(ctx)}
	}
}

// report makes the hub's properties those of doc, which has members of names only.
func (r *reported) report(ctx context.Context, doc map[string]any) error {
	if err := r.take(ctx); err != nil {
		return err
	}
	defer func() { r.turn <- struct{}{} }()
	for range 2 { // once more if another writer came in between
		if r.stale.Swap(false) {
			r.acknowledged = nil
		}
		if r.acknowledged == nil {
			if err := r.read(ctx); err != nil {
				return err
			}
		}
		patch, differ := diffPatch(r.acknowledged, doc)
		if !differ {
			return nil
		}
		alone, err := r.patch(ctx, patch)
		if err != nil || alone {
			return err
		}
	}
	return nil
}

func (r *reported) read(ctx context.Context) error {
	t, err := r.client.GetTwin(ctx)
	if err != nil {
		return err
	}
	all, err := decodeObject(t.Reported)
	if err != nil {
		return &transport.Error{Kind: transport.Protocol, Op: transport.OpTwinGet, Err: err}
	}
	r.acknowledged, r.version = map[string]any{}, t.ReportedVersion
	for _, name := range r.names {
		if value, ok := all[name]; ok {
			r.acknowledged[name] = value
		}
	}
	return nil
}

// patch sends a patch. alone is false when the version shows a change by another writer since the
// last answer.
func (r *reported) patch(ctx context.Context, patch map[string]any) (alone bool, err error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return false, invalid(err)
	}
	before, version := r.acknowledged, int64(0)
	r.acknowledged = nil // unknown until the hub acknowledges
	if version, err = r.client.PatchReported(ctx, text); err != nil {
		return false, err
	}
	alone = version == 0 || version == r.version+1
	if alone {
		r.acknowledged, _ = mergePatch(before, patch).(map[string]any)
		r.version = version
	}
	return alone, nil
}

// forget makes the next report read the twin. It waits for nothing: a report that runs may wait
// long for an answer.
func (r *reported) forget() { r.stale.Store(true) }
