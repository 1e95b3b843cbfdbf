"""Processes for steps and tools: a program that starts only after its intent is recorded
(`gated_process`), its output (`output_capture`), and finding and ending processes (`processes`).
"""
