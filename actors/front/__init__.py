"""The doors that clients come through: transports above one protocol core."""
