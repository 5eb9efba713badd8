"""The paper's tables and figures, one file each: at full scale, and at small scale from a folder of data."""
