//go:build tinygo

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/soypat/cyw43439"
	"github.com/soypat/seqs/eth/dhcp"
	"github.com/soypat/seqs/eth/dns"
	"github.com/soypat/seqs/stacks"

	"github.com/hubline-iot/hubline/cross/arm/board/wifi"
)

const (
	mtu = 1500
	// longestName is the longest host name that the stack takes.
	longestName = 30
	// answerTime is how long DHCP and DNS may take; arpTime is for the local network.
	answerTime = 10 * time.Second
	arpTime    = time.Second
	poll       = 20 * time.Millisecond
	// idle is the pause of the packet loop without packets. The chip has no interrupt here.
	idle = 10 * time.Millisecond
)

var (
	errDHCP = errors.New("dhcp: no address; check the network's server")
	errARP  = errors.New("arp: no answer from the router or the host")
	errDNS  = errors.New("dns: no address for the name; check addr and the network's name server")
	errAddr = errors.New("addr: give host:port")
)

// chip is the CYW43439 and the IP stack. It implements wifi.Radio and wifi.Stack.
type chip struct {
	ssid, passphrase string

	device  *cyw43439.Device
	stack   *stacks.PortStack
	lease   *stacks.DHCPClient
	names   *stacks.DNSClient
	socket  *wifi.Socket // of the clock
	started bool         // the packet loop runs
	frame   [mtu]byte    // the packet loop's
}

func newChip(ssid, passphrase string) *chip {
	return &chip{ssid: ssid, passphrase: passphrase, device: cyw43439.NewPicoWDevice()}
}

// Restart implements wifi.Radio.
func (c *chip) Restart() error {
	if c.started {
		c.device.Reset()
	}
	config := cyw43439.DefaultWifiConfig()
	config.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.Level(127)}))
	if err := c.device.Init(config); err != nil {
		return err
	}
	mac, err := c.device.HardwareAddr6()
	if err != nil || c.started {
		return err
	}
	c.stack = stacks.NewPortStack(stacks.PortStackConfig{MAC: mac, MaxOpenPortsUDP: 2, MaxOpenPortsTCP: 1, MTU: mtu,
		Logger: config.Logger})
	c.names = stacks.NewDNSClient(c.stack, dns.ClientPort)
	c.started = true
	go c.carry()
	return nil
}

// Join implements wifi.Radio.
func (c *chip) Join() error {
	c.device.RecvEthHandle(c.receive)
	return c.device.JoinWPA2(c.ssid, c.passphrase)
}

// Joined implements wifi.Radio.
func (c *chip) Joined() bool { return c.device.IsLinkUp() }

// receive takes a frame from the driver.
func (c *chip) receive(frame []byte) error {
	if s := c.socket; s != nil {
		s.Deliver(frame)
	}
	return c.stack.RecvEth(frame)
}

// carry carries packets between the driver and the stack, for ever. An error loses a packet, which
// is what packets are.
func (c *chip) carry() {
	for {
		got, _ := c.device.PollOne()
		n, err := c.stack.HandleEth(c.frame[:])
		if err == nil && n > 0 {
			_ = c.device.SendEth(c.frame[:n])
		} else if !got {
			time.Sleep(idle)
		}
	}
}

// Lease implements wifi.Stack.
func (c *chip) Lease() (time.Duration, error) {
	_ = c.stack.CloseUDP(dhcp.DefaultClientPort) // of the lease before
	c.stack.SetAddr(netip.AddrFrom4([4]byte{}))
	c.lease = stacks.NewDHCPClient(c.stack, dhcp.DefaultClientPort)
	err := c.lease.BeginRequest(stacks.DHCPRequestConfig{Xid: uint32(random()) | 1,
		Hostname: deviceID[:min(longestName, len(deviceID))]})
	if err != nil {
		return 0, err
	}
	if !until(context.Background(), answerTime, func() bool { return c.lease.State() == dhcp.StateBound }) {
		return 0, errDHCP
	}
	_ = c.stack.CloseUDP(dhcp.DefaultClientPort)
	address := c.lease.Offer()
	if !address.Is4() {
		return 0, errDHCP
	}
	c.stack.SetAddr(address)
	return c.lease.IPLeaseTime(), nil
}

// until polls for at most limit.
func until(ctx context.Context, limit time.Duration, done func() bool) bool {
	for end := time.Now().Add(limit); !done(); time.Sleep(poll) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
	}
	return true
}

// hop returns the hardware address to which packets for an address go.
func (c *chip) hop(ctx context.Context, to netip.Addr) ([6]byte, error) {
	own, err := c.stack.Addr().Prefix(int(c.lease.CIDRBits()))
	if err != nil || !own.Contains(to) {
		to = c.lease.Router()
	}
	arp := c.stack.ARP()
	arp.Abort()
	if err := arp.BeginResolve(to); err != nil {
		return [6]byte{}, err
	}
	if !until(ctx, arpTime, arp.IsDone) {
		return [6]byte{}, errARP
	}
	_, mac, err := arp.ResultAs6()
	return mac, err
}

// resolve returns the endpoint of host:port.
func (c *chip) resolve(ctx context.Context, text string) (netip.AddrPort, [6]byte, error) {
	name, port, err := split(text)
	if err != nil {
		return netip.AddrPort{}, [6]byte{}, err
	}
	address, err := netip.ParseAddr(name)
	if err != nil {
		if address, err = c.lookUp(ctx, name); err != nil {
			return netip.AddrPort{}, [6]byte{}, err
		}
	}
	mac, err := c.hop(ctx, address)
	return netip.AddrPortFrom(address, port), mac, err
}

// lookUp asks the network's name server for an IPv4 address.
func (c *chip) lookUp(ctx context.Context, name string) (netip.Addr, error) {
	servers := c.lease.DNSServers()
	if len(servers) == 0 {
		return netip.Addr{}, errDNS
	}
	mac, err := c.hop(ctx, servers[0])
	if err != nil {
		return netip.Addr{}, err
	}
	question, err := dns.NewName(name)
	if err != nil {
		return netip.Addr{}, err
	}
	_ = c.stack.CloseUDP(dns.ClientPort) // of the query before
	err = c.names.StartResolve(stacks.DNSResolveConfig{DNSAddr: servers[0], DNSHWAddr: mac, EnableRecursion: true,
		Questions: []dns.Question{{Name: question, Type: dns.TypeA, Class: dns.ClassINET}}})
	if err != nil {
		return netip.Addr{}, err
	}
	done := until(ctx, answerTime, func() bool { done, _ := c.names.IsDone(); return done })
	if _, code := c.names.IsDone(); !done || code != dns.RCodeSuccess {
		return netip.Addr{}, errDNS
	}
	answers := c.names.Answers()
	for i := range answers {
		if data := answers[i].RawData(); len(data) == 4 {
			return netip.AddrFrom4([4]byte(data)), nil
		}
	}
	return netip.Addr{}, errDNS
}
