"""The study: tables and plots of how GAN training behaves on this machine, measured cell by cell."""
