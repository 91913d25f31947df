package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hubline-iot/hubline/examples/internal/setup"
)

// disk is the state of the fake RAUC and of the boot loader: two slots, as they are in a file.
type disk struct {
	path   string
	Slots  [2]system
	Booted int
	// Primary is the slot that the boot loader tries first.
	Primary int
}

// system is the content of a slot.
type system struct {
	Version string
	Boots   bool // whether it gets as far as the program
	Bad     bool // the boot loader does not start it
	Tries   int  // starts until mark-good
}

// names are those of the slots in RAUC's configuration, bootNames those at the boot loader.
var names, bootNames = [2]string{"rootfs.0", "rootfs.1"}, [2]string{"A", "B"}

const tries = 3

func load(path string) (*disk, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := &disk{path: path}
	return d, json.Unmarshal(text, d)
}

func (d *disk) save() error {
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return os.WriteFile(d.path, text, 0o600)
}

// boot is the boot loader: it starts the primary slot as often as that has tries left, and then the
// other one.
func (d *disk) boot() (system, error) {
	s := &d.Slots[d.Primary]
	if !s.Bad && s.Tries > 0 {
		s.Tries--
		d.Booted = d.Primary
	} else {
		d.Booted = 1 - d.Primary
		d.Slots[d.Booted].Tries = tries
	}
	return d.Slots[d.Booted], d.save()
}

// fakeRAUC behaves as rauc 1.x does with these arguments, as far as its exit status and output go.
func fakeRAUC(path string, args []string, stdout, stderr io.Writer) int {
	d, err := load(path)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	switch command := strings.Join(args, " "); {
	case len(args) == 2 && args[0] == "install":
		err = d.install(args[1], stdout)
	case command == "status --detailed --output-format=json":
		err = json.NewEncoder(stdout).Encode(d.status())
	case len(args) >= 2 && len(args) <= 3 && args[0] == "status" && strings.HasPrefix(args[1], "mark-"):
		err = d.mark(strings.TrimPrefix(args[1], "mark-"), append(args[2:], "booted")[0], stdout)
	default:
		err = fmt.Errorf("unknown subcommand %s", command)
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// bundle is the content of a fake bundle. RAUC verifies a signature in it.
type bundle struct {
	Version string
	Boots   bool
	Signer  string
}

const (
	keyring   = "release key"
	lastError = "LastError" // how RAUC begins the reason
)

func (d *disk) install(path string, stdout io.Writer) error {
	var b bundle
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	fmt.Fprintf(stdout, "installing\n  0%% Installing\n 20%% Checking bundle\n")
	if err != nil || b.Signer != keyring {
		return fmt.Errorf("%s: signature verification failed\nInstalling `%s` failed", lastError, path)
	}
	other := 1 - d.Booted
	d.Slots[other] = system{Version: b.Version, Boots: b.Boots, Tries: tries}
	d.Primary = other
	fmt.Fprintf(stdout, "100%% Installing done.\nInstalling `%s` succeeded\n", path)
	return d.save()
}

// mark does mark-good, mark-bad and mark-active.
func (d *disk) mark(state, which string, stdout io.Writer) error {
	i := d.Booted
	if which == "other" {
		i = 1 - i
	}
	switch state {
	case "good":
		d.Slots[i].Bad, d.Slots[i].Tries = false, tries
	case "bad":
		d.Slots[i].Bad = true
	case "active":
		d.Primary, d.Slots[i].Bad, d.Slots[i].Tries = i, false, tries
	default:
		return fmt.Errorf("unknown subcommand mark-%s", state)
	}
	fmt.Fprintf(stdout, "rauc status: marked slot(s) %s as %s\n", names[i], state)
	return d.save()
}

// status has the members of RAUC's JSON that say something here.
func (d *disk) status() map[string]any {
	var slots []map[string]any
	for i, s := range d.Slots {
		state, good := "inactive", "good"
		if i == d.Booted {
			state = "booted"
		}
		if s.Bad || s.Tries == 0 {
			good = "bad"
		}
		slots = append(slots, map[string]any{names[i]: map[string]any{
			"class": "rootfs", "bootname": bootNames[i], "state": state, "boot_status": good, "parent": nil,
			"slot_status": map[string]any{"status": "ok",
				"bundle": map[string]any{"compatible": setup.UpdateModel, "version": s.Version}},
		}})
	}
	return map[string]any{"compatible": setup.UpdateModel, "variant": nil, "booted": bootNames[d.Booted],
		"boot_primary": names[d.Primary], "slots": slots}
}
