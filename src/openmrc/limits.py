"""Every limit of openmrc and the reason for it. Reaching one is counted, never silent."""

from __future__ import annotations

# --- the wire and the protocol -------------------------------------------------------------
PSN_BITS = 24  # BTH.PSN (docs/reference/wire.md)
MSN_BITS = 16  # METH.MSN and RQMSN
MAX_MESSAGE_BYTES = 1 << 31  # RETH.DMA length; OCP MRC 1.0
PMTU_CHOICES = (1024, 2048, 4096, 8192)  # payload bytes of a full packet
MAX_PLANES = 8  # port_status_mask is read for 8 ports; NICs of today break out into at most 8
MAX_EV_COUNT = 256  # active EVs per QP
MAX_BACKUP_PER_PLANE = 8  # spare EVs per plane
MAX_MPR = 255  # SETH.MPR is 8 bits, in units of 128 PSNs
MPR_UNIT = 128
SACK_BITS = 64  # SETH bitmap
MAX_WRITE_IMM_OUTSTANDING = 32  # default and minimum of what a responder must hold
PORT_UPDATE_REPEATS = 16  # a Port Status Update is repeated at most this often

# --- files ---------------------------------------------------------------------------------
MAX_CAPTURE_BYTES = 4 << 30  # simulated packets as real bytes: no tool opens a larger file gladly

# --- addresses -----------------------------------------------------------------------------
UPLINK_BITS = 14  # EV = plane << 16 | 0xC000 | uplink
USID_MIN, USID_MAX = 0x1, 0xDFFF  # the range real switches accept (RFC 9800 deployments)
MAX_PATHS_TOTAL = 1 << 16  # plane x uplink rides in 16 bits of a simulated packet event

# --- integer time --------------------------------------------------------------------------
MAX_TIME_PS = 1 << 62  # int64 picoseconds: 53 days, half the range so that sums do not wrap
NEVER_PS = 1 << 62  # "no deadline"
