// Package updatedata has the updates and deployments that a test gives an update service of package
// testbroker, and what the service knows of devices, as plain data.
package updatedata
