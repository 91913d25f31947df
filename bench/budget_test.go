package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAnIdleClientKeepsToItsBudget(t *testing.T) {
	all := []IdleSettings{{Clients: 10_000, Transport: "mqtt"}}
	for c := range idleBudgets {
		all = append(all, IdleSettings{Clients: 1000, Transport: c.over, Secure: c.secure, Outage: c.outage})
	}
	for _, s := range all {
		t.Run(fmt.Sprintf("%d, %s, TLS %v, outage %v", s.Clients, s.Transport, s.Secure, s.Outage), func(t *testing.T) {
			needFiles(t, s.Clients+200)
			r, err := Idle(limit(t), s)
			if err == nil {
				t.Logf("%+v", *r)
				err = r.Over()
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// needFiles skips the test if the process may not open n files, a limit that only an administrator
// can raise.
func needFiles(t *testing.T, n int) {
	t.Helper()
	if openFiles() >= n {
		return
	}
	t.Skipf("SKIPPED: a process may have %d files open here, and this needs %d: NOT measured (raise ulimit -n)",
		openFiles(), n)
}

func TestADeviceOnASharedConnectionKeepsToItsBudget(t *testing.T) {
	for _, messages := range []bool{false, true} {
		t.Run(fmt.Sprintf("messages %v", messages), func(t *testing.T) {
			r, err := Fleet(limit(t), FleetSettings{Devices: 1000, Messages: messages})
			if err == nil {
				t.Logf("%+v", *r)
				err = r.Over()
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Fleet can measure the raw library's sessions and links as the floor.
func TestTheFloorOfASharedConnection(t *testing.T) {
	r, err := Fleet(limit(t), FleetSettings{Devices: 100, Messages: true, Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%+v", *r); r.Goroutines != 3 {
		t.Errorf("%v goroutines for a session with two links", r.Goroutines)
	}
}

// A tenth of the command's minute.
func TestAnOutageCostsLittleAndLosesNothing(t *testing.T) {
	r, err := Outage(limit(t), OutageSettings{
		Before: 1500 * time.Millisecond, Absent: 3 * time.Second, After: 1500 * time.Millisecond,
		Every: 100 * time.Millisecond, Secure: true,
	})
	if err == nil {
		t.Logf("%+v", *r)
		err = r.Over()
	}
	if err != nil {
		t.Fatal(err)
	}
}
