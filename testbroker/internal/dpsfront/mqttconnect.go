package dpsfront

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// CONNACK return codes [MQTT-3.2.2.3].
const (
	refusedVersion     = 1
	refusedIdentifier  = 2
	refusedCredentials = 4
	refusedAuthority   = 5
)

// maxKeepAlive is the longest keep-alive. The service waits at most 1.5 times that for a packet.
const maxKeepAlive = 1178 * time.Second

// connect checks a CONNECT and answers it. A device that is not enrolled is accepted: it learns
// that from the answer to its registration.
func (c *client) connect(k *mqtt.ConnectPacket, bad error) error {
	if c.who != nil {
		return errors.New("second CONNECT [MQTT-3.1.0-2]")
	}
	switch name := k.Name; {
	case name != "MQTT" && name != "MQIsdp":
		return fmt.Errorf("protocol %q", name)
	case name != "MQTT" || k.Level != mqtt.V311:
		return c.refuse(refusedVersion, fmt.Errorf("protocol %s level %d, want MQTT 4", name, k.Level))
	case bad != nil:
		return bad
	}
	scope, who, err := parseUserName(k.UserName)
	c.Identify(who.Identity())
	if err := c.connectFaults(); err != nil {
		return err
	}
	if err != nil {
		return c.refuse(refusedCredentials, err)
	}
	if !strings.EqualFold(k.ClientID, who.ID) {
		return c.refuse(refusedIdentifier, fmt.Errorf("client id %q is not the registration id %q",
			k.ClientID, who.ID))
	}
	who.Connection, who.Chain = c.Number, c.PeerChain()
	if k.Password != "" {
		token, err := identity.ParseToken(k.Password)
		if err != nil {
			return c.refuse(refusedCredentials, err)
		}
		who.Token = &token
	}
	if bad := c.front.dps.CheckStated(scope, who); bad != nil {
		code := byte(refusedCredentials)
		if bad.Code == dps.CodeNotEnrolled {
			code = refusedAuthority
		}
		return c.refuse(code, bad)
	}
	if bad := c.front.dps.Authenticate(who); bad != nil && bad.Code != dps.CodeNotEnrolled {
		return c.refuse(refusedAuthority, bad)
	}
	if err := c.takeOver(who); err != nil {
		return err
	}
	c.keepAlive = min(time.Duration(k.KeepAlive)*time.Second, maxKeepAlive)
	if c.keepAlive == 0 {
		c.keepAlive = maxKeepAlive
	}
	c.Establish()
	c.Hub.Event(event.Event{Kind: event.Connected}, c.Conn)
	c.Hub.Changed.Wake()
	c.send(mqtt.EncodeConnack(mqtt.V311, false, 0, nil)) // sessions are never kept
	c.Hub.Garbage(fault.GarbageOnConnect, c.Conn, badPacket)
	return nil
}

// takeOver makes c the connection of its registration and ends the previous one.
func (c *client) takeOver(who *dps.Client) error {
	key := strings.ToLower(who.ID)
	c.front.mu.Lock()
	c.who = who
	before := c.front.current[key]
	c.front.current[key] = c
	c.front.mu.Unlock()
	if before != nil {
		before.CloseFor(hub.ErrReplaced)
		<-before.Done
	}
	return nil
}

// parseUserName parses
//
//	scope "/registrations/" id "/" param *( "&" param )
//
// Clients send more parameters than the version, and some send the version twice: the first counts.
// The client has what could be read, also if there is an error.
func parseUserName(s string) (scope string, c *dps.Client, err error) {
	c = &dps.Client{Protocol: hubdata.MQTT}
	part := strings.SplitN(s, "/", 4)
	if len(part) != 4 || !strings.EqualFold(part[1], "registrations") {
		return "", c, errors.New("user name is not that of a registration")
	}
	scope, c.ID = part[0], part[2]
	for pair := range strings.SplitSeq(strings.TrimPrefix(part[3], "?"), "&") {
		name, value, _ := strings.Cut(pair, "=")
		if name == "api-version" && c.APIVersion == "" {
			if c.APIVersion, err = url.PathUnescape(value); err != nil {
				return scope, c, fmt.Errorf("user name: %w", err)
			}
		}
	}
	return scope, c, nil
}

// refuse answers a CONNECT with a code and ends the connection.
func (c *client) refuse(code byte, why error) error {
	c.answered = true
	c.send(mqtt.EncodeConnack(mqtt.V311, false, code, nil))
	c.CloseGracefully(why)
	c.Hub.Event(event.Event{Kind: event.Refused, Code: code, Err: why}, c.Conn)
	c.Drain()
	return why
}

// connectFaults applies the faults of a connect. An error ends the connection.
func (c *client) connectFaults() error {
	if err := c.ConnectFaults(c.ID); err != nil {
		return err
	}
	if in := c.Fault(fault.RefuseConnect); in != nil {
		return c.refuse(in.Fault.Code, hub.FaultError(fault.RefuseConnect))
	}
	if in := c.Fault(fault.SlowConnack); in != nil {
		if !c.Sleep(in.Fault.Delay) {
			return hub.FaultError(fault.SlowConnack)
		}
	}
	return nil
}
