"""What answers are worth: defaults and tuned settings beside the best that hands would find."""
