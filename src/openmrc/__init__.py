"""openmrc"""
