package hubdata

import "time"

// Session is the MQTT session of a device, with what its last CONNECT said.
type Session struct {
	// DeviceID and ModuleID name the device.
	DeviceID, ModuleID string
	// ClientID is its client id, or the one that the broker assigned. UserName is the user name.
	ClientID, UserName string
	// Version is 4 for MQTT 3.1.1 and 5 for MQTT 5.
	Version byte
	// CleanStart is the flag of CONNECT, Present the answer in CONNACK.
	CleanStart, Present bool
	// Connected reports that the device is connected.
	Connected bool
	// KeepAlive is the keep-alive in force, Expiry how long the session outlives its connection;
	// negative means that it does not expire.
	KeepAlive, Expiry time.Duration
	// Properties are the properties of CONNECT with their names in the standard, in order.
	Properties []Property
	// Authentications is how often the device has authenticated itself on its last connection.
	Authentications int
	// Nonce is that of the last birth message of the present connection, in hexadecimal, at a hub with
	// the MQTT v5 connection profile. It is empty before the birth: the hub sends nothing yet.
	Nonce string
	// Filters are its subscriptions, sorted by topic filter.
	Filters []Filter
}

// Filter is a subscription with its options.
type Filter struct {
	Filter            string
	QoS               byte
	NoLocal           bool
	RetainAsPublished bool
	RetainHandling    byte
	Identifier        uint32
}
