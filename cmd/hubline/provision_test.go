package main

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
)

// service returns a provisioning service at an address of its own, for the devices pump-2 and those
// of the group line-1, and the addresses that were dialed.
func (s *shell) service() (dps *testbroker.DPS, keys map[string]string, dialed *[]string) {
	dps, err := testbroker.NewDPS(&testbroker.DPSOptions{Seed: 1, Polls: -1})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, dps.Close()) })
	require.NoError(s.t, dps.Link(s.hub))
	keys = map[string]string{}
	for _, e := range []dpsdata.Enrollment{{ID: "pump-2"}, {ID: "line-1", Group: true}} {
		e, err := dps.Enroll(e)
		require.NoError(s.t, err)
		keys[e.ID] = e.PrimaryKey
	}
	delete(s.env, target.EnvConnect)
	toHub, toDPS := s.dial, hubfixture.AtPorts(dps)
	dialed = new([]string)
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		*dialed = append(*dialed, address)
		if address == "192.0.2.9:7443" {
			return toDPS(ctx, network, dps.HostName()+":443")
		}
		return toHub(ctx, network, address)
	}
	return dps, keys, dialed
}

// An address of provision is that of the provisioning service, with its name or without.
func TestProvisionConnectsToTheGivenAddress(t *testing.T) {
	for _, address := range []string{"192.0.2.9:7443", "dps=192.0.2.9:7443"} {
		s := newShell(t, &testbroker.Options{Seed: 1})
		dps, keys, dialed := s.service()
		require.Equal(t, exitOK, s.run("provision", "-id-scope", dps.IDScope(), "-registration-id", "pump-2", "-key-file",
			s.file("key", keys["pump-2"]), "-dps", dps.HostName(), "-address", address), s.log.String())
		require.Equal(t, []string{"192.0.2.9:7443"}, *dialed)
	}
}

// The variables that testhub prints, and that the examples of the official SDKs read, are enough.
func TestTheVariablesOfTheOfficialExamples(t *testing.T) {
	for id, variable := range map[string]string{
		"pump-2": target.EnvProvisionKey, "pump-3": target.EnvProvisionGroupKey,
	} {
		s := newShell(t, &testbroker.Options{Seed: 1})
		connection := s.hub.ConnectionString("pump-1")
		dps, keys, _ := s.service()
		key := keys["pump-2"]
		if id == "pump-3" {
			key = keys["line-1"]
		}
		s.env[target.EnvDPS], s.env[target.EnvIDScope] = dps.HostName(), dps.IDScope()
		s.env[target.EnvRegistrationID], s.env[variable] = id, key
		require.Equal(t, exitOK, s.run("provision", "-address", "192.0.2.9:7443"), s.log.String())
		require.Contains(t, s.out.String(), `"deviceId": "`+id+`"`)
		require.Equal(t, exitOK, s.run("send", "-body", "x", "-address", "dps=192.0.2.9:7443"), s.log.String())
		require.NotContains(t, s.out.String()+s.log.String(), key)

		s.env[target.EnvConnect] = connection
		require.Equal(t, exitOK, s.run("send", "-body", "y"), s.log.String())
		messages := s.hub.Messages()
		require.Equal(t, []string{id, "pump-1"}, []string{messages[0].DeviceID, messages[1].DeviceID})
	}
}
