// Command partition is a Linux device with A/B partitions that takes its system from an update
// service and lets RAUC install it.
//
// Everything is in this process, but for RAUC: rauc is a fake, which this program is when it runs
// under that name. The back end publishes three bundles:
//
//	version 2  works.
//	version 3  does not boot. The boot loader goes back to version 2.
//	version 4  is not signed with a key that RAUC knows. RAUC refuses it.
//
// The exit status is 0 only if the service has exactly one final report about each of these, and
// version 2 runs at the end. For SWUpdate and Mender see docs/updates.md.
//
//	go run ./examples/partition
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
	"github.com/hubline-iot/hubline/update/host"
)

func main() {
	if filepath.Base(os.Args[0]) == "rauc" {
		os.Exit(fakeRAUC(filepath.Join(filepath.Dir(os.Args[0]), "disk"), os.Args[1:], os.Stdout, os.Stderr))
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "partition:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "partition")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := &disk{path: filepath.Join(dir, "disk"), Slots: [2]system{{Version: "1", Boots: true, Tries: tries}, {Bad: true}}}
	if err := errors.Join(os.Symlink(self, filepath.Join(dir, "rauc")), d.save()); err != nil {
		return err
	}
	return setup.RunUpdates(func(ctx context.Context, cloud *setup.UpdateCloud) error {
		return machine(ctx, cloud, dir)
	}, publishAll)
}

// publishAll is the back end.
func publishAll(ctx context.Context, cloud *setup.UpdateCloud) error {
	for _, u := range []struct {
		number int
		bundle bundle
		want   updatedata.Outcome
	}{
		{2, bundle{Version: "2", Boots: true, Signer: keyring}, updatedata.OutcomeSucceeded},
		{3, bundle{Version: "3", Signer: keyring}, updatedata.OutcomeFailed},
		{4, bundle{Version: "4", Boots: true, Signer: "another key"}, updatedata.OutcomeFailed},
	} {
		file, err := json.Marshal(u.bundle)
		if err != nil {
			return err
		}
		if err := cloud.Install(ctx, u.number, file, u.want, 2); err != nil {
			return err
		}
	}
	return nil
}

// machine boots a slot after each reset until ctx ends.
func machine(ctx context.Context, cloud *setup.UpdateCloud, dir string) error {
	for ctx.Err() == nil {
		d, err := load(filepath.Join(dir, "disk"))
		if err != nil {
			return err
		}
		s, err := d.boot()
		if err != nil {
			return err
		}
		fmt.Printf("machine  boots version %s from %s\n", s.Version, names[d.Booted])
		if !s.Boots {
			continue // a watchdog resets it
		}
		if err := program(ctx, cloud, dir, s.Version); !errors.Is(err, agent.ErrRestart) && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// program is the program in each system, with the agent.
func program(ctx context.Context, cloud *setup.UpdateCloud, dir, version string) error {
	registrar, err := cloud.Registrar()
	if err != nil {
		return err
	}
	service, err := dpsupdate.New(registrar, nil)
	if err != nil {
		return err
	}
	keys, err := adusign.NewKeys(&adusign.KeysOptions{Roots: cloud.Updates.Roots()})
	if err != nil {
		return err
	}
	network := cloud.Network()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: network.TLS,
		DialContext: func(ctx context.Context, kind, address string) (net.Conn, error) {
			return network.Dial(ctx, kind, address)
		}}}
	a, err := agent.New(&agent.Options{
		Service: service,
		Handlers: map[string]agent.Handler{setup.UpdateHandler: &rauc{
			command: filepath.Join(dir, "rauc"),
			bundle:  filepath.Join(dir, "update.raucb"),
			healthy: func(ctx context.Context) error {
				_, err := registrar.Register(ctx) // as an example of what works
				return err
			},
		}},
		Verify:   keys.Verify,
		RootKeys: keys.Update,
		Fetch:    host.NewFetcher(client),
		Store:    host.NewStore(filepath.Join(dir, "updates")),
		Properties: agent.Properties{
			{Name: "manufacturer", Value: setup.UpdateProvider}, {Name: "model", Value: setup.UpdateModel}},
		Installed: func() agent.UpdateID {
			return agent.UpdateID{Provider: setup.UpdateProvider, Name: setup.UpdateModel, Version: version + ".0"}
		},
		Interval: 100 * time.Millisecond, Spread: -1, // a fleet asks every few hours
	})
	if err != nil {
		return err
	}
	return a.Run(ctx)
}
