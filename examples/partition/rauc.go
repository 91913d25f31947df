package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/hubline-iot/hubline/update/agent"
)

// rauc is an agent.Handler that hands a step to RAUC. The step has one file, a bundle, which RAUC
// verifies by its own keyring, too. Its installedCriteria is the version in the bundle.
type rauc struct {
	command string // "rauc", or its path
	bundle  string // where the download goes; RAUC wants the suffix .raucb
	healthy func(ctx context.Context) error
}

// status is what `rauc status --detailed --output-format=json` writes, as far as this needs it.
type status struct {
	Primary string            `json:"boot_primary"`
	Slots   []map[string]slot `json:"slots"`
}

type slot struct {
	State      string `json:"state"`       // "booted" or "inactive"
	BootStatus string `json:"boot_status"` // "good" or "bad"
	SlotStatus struct {
		Bundle struct {
			Version string `json:"version"`
		} `json:"bundle"`
	} `json:"slot_status"`
}

// run runs RAUC. Its exit status is 0, 1 after a failure, and 2 if its service does not answer.
func (r *rauc) run(ctx context.Context, args ...string) (string, error) {
	var out, failure strings.Builder
	c := exec.CommandContext(ctx, r.command, args...)
	c.Stdout, c.Stderr = &out, &failure
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("rauc %s: %w: %s", args[0], err, strings.TrimSpace(failure.String()))
	}
	return out.String(), nil
}

// version returns the version in the booted slot, and whether that is the primary one.
func (r *rauc) version(ctx context.Context) (version string, primary bool, err error) {
	text, err := r.run(ctx, "status", "--detailed", "--output-format=json")
	if err != nil {
		return "", false, err
	}
	var s status
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return "", false, fmt.Errorf("rauc status: %w", err)
	}
	for _, slots := range s.Slots {
		for name, slot := range slots {
			if slot.State == "booted" {
				return slot.SlotStatus.Bundle.Version, name == s.Primary, nil
			}
		}
	}
	return "", false, errors.New("rauc status: no slot is booted")
}

// Installed confirms the new system when that runs and works.
func (r *rauc) Installed(ctx context.Context, w *agent.Work) (bool, error) {
	version, _, err := r.version(ctx)
	switch {
	case err != nil:
		return false, err
	case version != w.Step.InstalledCriteria && w.Restarted:
		return false, fmt.Errorf("version %s runs: the boot loader went back to it", version)
	case version != w.Step.InstalledCriteria:
		return false, nil
	}
	if err := r.healthy(ctx); err != nil {
		return false, err
	}
	_, err = r.run(ctx, "status", "mark-good")
	return err == nil, err
}

// Download begins again after a reset. To continue instead, give Work.Open what is in the file.
func (r *rauc) Download(ctx context.Context, w *agent.Work) error {
	in, err := w.Open(ctx, &w.Files[0], nil)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(r.bundle)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// Install writes the other slot and makes it the primary one. RAUC does it from the beginning if it
// was interrupted.
func (r *rauc) Install(ctx context.Context, _ *agent.Work) (agent.Next, error) {
	_, err := r.run(ctx, "install", r.bundle)
	return agent.NextContinue, err
}

// Apply asks for a reboot.
func (r *rauc) Apply(context.Context, *agent.Work) (agent.Next, error) { return agent.NextRestart, nil }

// Cancel makes the system from before the primary one again.
func (r *rauc) Cancel(ctx context.Context, w *agent.Work) (agent.Next, error) {
	version, primary, err := r.version(ctx)
	switch {
	case err != nil:
		return agent.NextContinue, err
	case version == w.Step.InstalledCriteria:
		_, err = r.run(ctx, "status", "mark-active", "other")
		if err == nil {
			_, err = r.run(ctx, "status", "mark-bad", "booted")
		}
		return agent.NextRestart, err
	case !primary:
		_, err = r.run(ctx, "status", "mark-active", "booted")
	}
	if removed := os.Remove(r.bundle); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return agent.NextContinue, err
}
